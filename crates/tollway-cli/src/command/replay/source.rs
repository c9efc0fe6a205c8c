//! Opens a trace: a file, or standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use anyhow::Context;

/// Reads are gathered up to this many bytes.
const INPUT_BUFFER: usize = 1 << 16;

/// A stream of lines with a name for messages, and a size where it is known.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) size: Option<u64>,
    pub(super) stream: Box<dyn BufRead>,
}

impl Source {
    /// Opens a file, or standard input for `-`.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self { name: "(stdin)".into(), size: None, stream: buffered(io::stdin()) });
        }
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("cannot read \"{name}\""))?;
        let about = file.metadata().with_context(|| format!("cannot read \"{name}\""))?;
        Ok(Self { name, size: about.is_file().then_some(about.len()), stream: buffered(file) })
    }
}

fn buffered(stream: impl io::Read + 'static) -> Box<dyn BufRead> {
    Box::new(BufReader::with_capacity(INPUT_BUFFER, stream))
}
