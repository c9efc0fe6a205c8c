//! What is asked of Redis: one command, for the keys of one slot.

/// One command for one slot.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The slot of its keys. Outside a Cluster nobody looks at it.
    pub(crate) slot: u16,
    /// `EVALSHA sha numkeys key… argument…`, or a plain command.
    pub(crate) command: redis::Cmd,
    /// Where the script comes from if a node does not know it; a plain command has none.
    pub(crate) script: Option<&'static Script>,
}

/// A script, and the hash by which a node that has seen it finds it again.
#[derive(Debug)]
pub(crate) struct Script {
    /// Lua.
    pub(crate) source: String,
    /// 40 hexadecimal digits.
    pub(crate) sha: String,
}

impl Script {
    /// Hashes it, as Redis does.
    pub(crate) fn new(source: String) -> Self {
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self { source, sha }
    }
}
