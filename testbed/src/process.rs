//! Runs a program that ends together with the test process, even if that is killed.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// The shell script that supervises the program. It prints the process id, and kills the program when its standard
/// input is closed, which also happens when the test process dies. In that case it removes the directory as well.
const SUPERVISOR_SCRIPT: &str = r#"log=$1; shift; "$@" >"$log" 2>&1 </dev/null & echo $!
read -r word; kill -9 $! 2>/dev/null; wait; [ "$word" = keep ] || rm -rf "$PWD""#;

/// A program that is running under the supervisor script.
#[derive(Debug)]
pub(crate) struct SupervisedProcess {
    supervisor: Child,
    pid: Pid,
    log: PathBuf,
}

impl SupervisedProcess {
    /// Starts the program, with its output in a file called `log` in `directory`.
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

    /// Sends a signal to the program, if it is still running.
    pub(crate) fn signal(&self, signal: Signal) {
        // The supervisor has not reaped the program yet, so its id cannot belong to another process.
        let _ = kill_process(self.pid, signal);
    }

    /// Returns whether the program has exited.
    pub(crate) fn has_exited(&self) -> bool {
        self.state().is_none_or(|state| state == 'Z')
    }

    /// Returns the state of the process as `/proc` shows it: `T` is stopped, `Z` has exited.
    pub(crate) fn state(&self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero())).ok()?;
        // The state follows the name, which may contain anything but ends with the last parenthesis.
        stat.rsplit_once(')')?.1.trim_start().chars().next()
    }

    /// Returns everything that the program has printed.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for SupervisedProcess {
    fn drop(&mut self) {
        // The files are kept: the next start of the same server may need them.
        if let Some(mut supervisor) = self.supervisor.stdin.take() {
            let _ = supervisor.write_all(b"keep\n");
        }
        let _ = self.supervisor.wait();
    }
}
