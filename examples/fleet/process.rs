//! Starts this program once more, in another role.

use std::env;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{self, Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use crate::timeline::OutcomeReport;

/// Ends when it is dropped, and also when this process ends in any other way: what it reads from us then ends.
pub(crate) struct Process {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
}

impl Process {
    pub(crate) fn start(role: &[&str]) -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        let mut child = command.args(role).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().map(BufReader::new);
        Ok(Self { child, output })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints.
    pub(crate) fn says(&mut self) -> io::Result<String> {
        let mut line = String::new();
        let output = self.output.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        match output.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// From now on each line is a report.
    pub(crate) fn read_reports(&mut self, service: usize, reports: Sender<OutcomeReport>) {
        let Some(output) = self.output.take() else { return };
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // Nobody listens any more when it is all over.
                let _ = OutcomeReport::read(service, &line).map(|report| reports.send(report));
            }
        });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // This ends what it reads first.
        let _ = self.child.wait();
    }
}

/// Ends this process when whoever started it is gone.
pub(crate) fn end_with_parent() {
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        process::exit(0);
    });
}
