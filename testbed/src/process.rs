//! A program that does not outlive the test.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Starts the program, says its number, and ends it when its own input does: that is when the test lets go of the other end of the
/// pipe, if only by dying. In that case nobody else is left to clear the directory away.
const SUPERVISOR_SCRIPT: &str = r#"log=$1; shift; "$@" >"$log" 2>&1 </dev/null & echo $!
read -r word; kill -9 $! 2>/dev/null; wait; [ "$word" = keep ] || rm -rf "$PWD""#;

/// A running program.
#[derive(Debug)]
pub(crate) struct SupervisedProcess {
    supervisor: Child,
    pid: Pid,
    log: PathBuf,
}

impl SupervisedProcess {
    /// Starts it, with what it prints in a file called `log` in `directory`.
    pub(crate) fn start(directory: &Path, program: &str, arguments: &[String]) -> Self {
        let log = directory.join("log");
        File::create(&log).expect("a log in a directory of our own");
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR_SCRIPT, "guard"])
            .args([log.as_os_str(), program.as_ref()])
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut said = String::new();
        let output = supervisor.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut said).expect("the shell says a number");
        let pid = said.trim().parse().ok().and_then(Pid::from_raw).expect("the number of a process");
        Self { supervisor, pid, log }
    }

    /// Sends it a signal; one that has ended already is left alone.
    pub(crate) fn signal(&self, signal: Signal) {
        // The guard has not waited for it yet, so the number cannot be anybody else's.
        let _ = kill_process(self.pid, signal);
    }

    /// Has it ended?
    pub(crate) fn has_exited(&self) -> bool {
        self.state().is_none_or(|state| state == 'Z')
    }

    /// What the system says it does: `T` is frozen, `Z` has ended.
    pub(crate) fn state(&self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero())).ok()?;
        // The state follows the name, which may contain anything but ends with the last parenthesis.
        stat.rsplit_once(')')?.1.trim_start().chars().next()
    }

    /// What it has printed.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for SupervisedProcess {
    fn drop(&mut self) {
        // What it wrote may be wanted, by its next run for one.
        if let Some(mut supervisor) = self.supervisor.stdin.take() {
            let _ = supervisor.write_all(b"keep\n");
        }
        let _ = self.supervisor.wait();
    }
}
