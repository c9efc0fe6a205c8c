//! The real binary, run to its end.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{fs, thread};

/// The result of a run.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The binary with these arguments, not yet started.
pub(crate) fn tollway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollway"));
    command.args(arguments);
    command
}

/// Runs it with nothing to read.
pub(crate) fn run(arguments: &[&str]) -> Ran {
    fed(arguments, "")
}

/// Runs it in a folder, with nothing to read.
pub(crate) fn run_in(folder: &Path, arguments: &[&str]) -> Ran {
    finish(tollway(arguments).current_dir(folder), "")
}

/// Runs it with `input` to read.
pub(crate) fn fed(arguments: &[&str], input: &str) -> Ran {
    finish(&mut tollway(arguments), input)
}

fn finish(command: &mut Command, input: &str) -> Ran {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // Beside the run, as it may answer before it has read all; and it need not read at all.
    let writer = thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Ran {
        code: status.code().unwrap(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// A file of the test that asks, and no other's.
pub(crate) fn file(name: &str, text: impl AsRef<[u8]>) -> String {
    // Tests run on threads that are called as they are.
    let test = thread::current().name().unwrap_or_default().replace("::", "-");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(name), text).unwrap();
    folder.join(name).to_str().unwrap().to_owned()
}

/// Returns the root of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
