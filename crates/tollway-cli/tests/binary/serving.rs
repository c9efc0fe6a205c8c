//! A server in a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::run::{run, tollway};

/// `tollway serve`, killed with the test if that did not stop it.
pub(crate) struct Serving {
    child: Child,
    /// Kept open: a server whose output nobody reads would be another test.
    stdout: BufReader<ChildStdout>,
    pub(crate) printed: String,
    pub(crate) addr: String,
    /// The address of the admin gate, or of the HTTP gate if there is none.
    pub(crate) admin: String,
}

impl Serving {
    pub(crate) fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = tollway(&["serve"]);
        // Tests run side by side: no gate may have its usual port.
        for gate in ["ADMIN", "TEXT", "THROTTR", "RESP", "SMOCKRON", "RLS"] {
            command.env(format!("TOLLWAY_{gate}"), "127.0.0.1:0");
        }
        // Cargo sets its variable for tests, too, and then the banner shows how to start this with cargo.
        command.env_remove("RUST_LOG").env_remove("CARGO_PKG_NAME");
        command.args(arguments).envs(environment.iter().copied());
        Self::start_command(command)
    }

    /// Starts what ends up as a server.
    pub(crate) fn start_command(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut printed = String::new();
        // One of these lines is printed unless everything is off that has one.
        while !printed.contains("zmq") && !printed.contains("Try:") {
            assert_ne!(stdout.read_line(&mut printed).unwrap(), 0, "ended after: {printed}");
        }
        let announced = |gate| printed.split(gate).nth(1).and_then(|rest| rest.lines().next());
        // An https:// URL is kept whole, as the commands need it.
        let address = |gate| announced(gate).map(|url| url.trim_start_matches("http://").to_owned());
        let addr = address("  http     ").unwrap();
        let admin = address("  admin    ").filter(|line| !line.contains(' ')).unwrap_or_else(|| addr.clone());
        Self { child, stdout, printed, addr, admin }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops the server, and returns all that it printed, without what differs from run to run.
    pub(crate) fn banner(mut self) -> String {
        self.signal("TERM");
        self.stdout.read_to_string(&mut self.printed).unwrap();
        let printed = self.printed.replace(env!("CARGO_BIN_EXE_tollway"), "tollway");
        without_ports(&without_ports(&printed, "127.0.0.1:", "ADDR"), "-p ", "-p PORT")
    }

    /// The exit code, and what was logged.
    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let log = BufReader::new(self.child.stderr.take().unwrap());
        (code, log.lines().map_while(Result::ok).collect::<Vec<_>>().join("\n"))
    }

    /// Asks again until the answer is as wanted. A server that is gone will never give it.
    pub(crate) fn wait_for(&mut self, as_wanted: impl Fn(&Self) -> bool) {
        while !as_wanted(self) {
            assert_eq!(self.child.try_wait().unwrap(), None, "the server is gone");
        }
    }

    pub(crate) fn ask(&self, arguments: &[&str]) -> (i32, String) {
        let is_for_operators = matches!(arguments[0], "reset" | "inspect" | "keys" | "explain");
        let addr = if is_for_operators { &self.admin } else { &self.addr };
        let ran = run(&[arguments, &["--addr", addr]].concat());
        (ran.code, ran.stdout + &ran.stderr)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Replaces a text and the number behind it.
fn without_ports(printed: &str, before: &str, name: &str) -> String {
    let mut parts = printed.split(before);
    let first = parts.next().unwrap().to_owned();
    parts
        .fold(first, |text, part| text + name + part.trim_start_matches(|digit: char| digit.is_ascii_digit()))
}
