//! A call: one command, for keys that are in one slot.

/// One command, whose keys are in one slot.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The slot of the keys. It has a meaning in a Cluster only.
    pub(crate) slot: u16,
    /// `EVALSHA sha numkeys key… argument…`, or a plain command.
    pub(crate) command: redis::Cmd,
    /// The script to load if a node does not know it; a plain command has none.
    pub(crate) script: Option<&'static Script>,
}

/// A script, and the hash that identifies it to a node that has loaded it.
#[derive(Debug)]
pub(crate) struct Script {
    /// The source code, in Lua.
    pub(crate) source: String,
    /// The SHA-1 of the source, in 40 hexadecimal digits.
    pub(crate) sha: String,
}

impl Script {
    /// Hashes the source, as Redis does.
    pub(crate) fn new(source: String) -> Self {
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self { source, sha }
    }
}
