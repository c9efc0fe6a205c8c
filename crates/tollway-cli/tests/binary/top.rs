//! `tollway top`: beside a real server under traffic, in a pipe and in a real terminal.

use std::net::TcpListener;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::{env, fs};

use serde_json::Value;
use tollway_client::http::blocking::Client;
use tollway_testbed::eventually;

use crate::run::{file, run};
use crate::serving::Serving;

const POLICY: &str = "limits: { Login: { burst: 2, count: 2, period: 1h }, Fast: { rate: 1000000/s } }";

fn serve(environment: &[(&str, &str)]) -> Serving {
    Serving::start(&["--config", &file("policy.yaml", POLICY), "--http", "127.0.0.1:0"], environment)
}

/// Sends requests until it is dropped. One id is denied nearly always, and one is allowed.
struct Traffic {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    fn start(serving: &Serving) -> Self {
        let client = Client::new(&serving.addr).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            // A server that is stopped meanwhile gives no answer.
            while !stopped.load(Ordering::Relaxed)
                && client.spend("Login", "mallory", 1).is_ok()
                && client.spend("Fast", "alice", 3).is_ok()
            {}
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn one_screen_is_printed_into_a_pipe() {
    let serving = serve(&[]);
    let _traffic = Traffic::start(&serving);
    eventually("a screen with both ids", || {
        let ran = run(&["top", "--once", "--width", "100", "--addr", &serving.admin]);
        assert_eq!((ran.code, &*ran.stderr), (0, ""));
        assert!(
            ran.stdout.starts_with("Tollway  ") && ran.stdout.contains("burst 2, 2 per 1h"),
            "{}",
            ran.stdout
        );
        ran.stdout.contains("mallory") && ran.stdout.lines().any(|line| line.starts_with("Fast "))
    });
}

#[test]
fn snapshots_are_printed_as_json() {
    let serving = serve(&[]);
    let _traffic = Traffic::start(&serving);
    eventually("a snapshot with the ids", || {
        let ran = run(&["top", "--json", "--once", "--addr", &serving.admin]);
        let lines: Vec<_> = ran.stdout.lines().collect();
        let [line] = lines[..] else { panic!("{lines:?} {}", ran.stderr) };
        let snapshot: Value = serde_json::from_str(line).unwrap();
        snapshot["top_denied"][0]["id"] == "mallory" && snapshot["top_spent"][0]["id"] == "alice"
    });
}

#[test]
fn what_cannot_be_watched_is_said() {
    let serving = serve(&[]);
    let ran = run(&["top", "--once", "--addr", &serving.addr]);
    assert_eq!(ran.code, 2);
    for words in ["has no live figures; check that it is the admin gate", "is at the admin gate: http://"] {
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
    let ran = run(&["top", "--addr", &serving.admin]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("not a terminal; print one screen with --once"), "{}", ran.stderr);
}

/// A terminal of tmux, with a server of its own.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn open() -> Self {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        // The path of a socket has at most 108 bytes.
        let socket = env::temp_dir().join(format!("tollway-top-{}-{number}", std::process::id()));
        let terminal = Self { socket: socket.to_str().unwrap().to_owned() };
        let opened = terminal.tmux(&["new-session", "-d", "-x", "100", "-y", "30", "env PS1='ready> ' sh"]);
        assert!(opened.status.success(), "{}", String::from_utf8_lossy(&opened.stderr));
        terminal.wait_for("ready>");
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut tmux = Command::new("tmux");
        tmux.args(["-f", "/dev/null", "-S", &self.socket]).args(arguments).output().unwrap()
    }

    fn press(&self, keys: &[&str]) {
        let sent = self.tmux(&[&["send-keys"], keys].concat());
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    }

    /// Types a command, and enters it.
    fn enter(&self, command: &str) {
        self.press(&["-l", command]);
        self.press(&["Enter"]);
    }

    fn screen(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p"]).stdout).unwrap()
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(text, || {
                last = self.screen();
                last.contains(text)
            });
        }));
        assert!(found.is_ok(), "{text:?} is not on the screen:\n{last}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn a_terminal_shows_the_server_and_is_restored() {
    let serving = serve(&[]);
    let traffic = Traffic::start(&serving);
    let terminal = Terminal::open();
    let pid = file("pid", "");
    let program = env!("CARGO_BIN_EXE_tollway");
    let top = format!("sh -c 'echo $$ > {pid}; exec {program} top --addr {}'", serving.admin);
    terminal.enter(&top);
    terminal.wait_for("LIMITS by requests");
    terminal.wait_for("DENIED MOST");
    terminal.wait_for("mallory");
    terminal.wait_for("q quit  ? help");
    for (keys, expected) in [
        (&["s"][..], "LIMITS by denials"),
        (&["p"], "SPENT MOST"),
        (&["?"], "Quit."),
        (&["Escape"], "SPENT MOST"),
        (&["/"], "filter: _"),
        (&["-l", "nobody"], "filter: nobody_"),
        (&["Enter"], "No row contains the filter."),
        (&["Escape"], "alice"),
        (&["Space"], "PAUSED"),
        (&["Space", "Tab"], "next list"),
    ] {
        terminal.press(keys);
        terminal.wait_for(expected);
    }
    // A server that restarts at its address is found again, and the last screen stays meanwhile.
    let admin = serving.admin.clone();
    drop(traffic);
    serving.signal("TERM");
    serving.wait();
    terminal.wait_for("connection lost");
    terminal.wait_for("SPENT MOST");
    let serving = serve(&[("TOLLWAY_ADMIN", &admin)]);
    let _traffic = Traffic::start(&serving);
    terminal.wait_for("healthy");
    terminal.press(&["q"]);
    // The shell is back with everything that was on its screen, and it shows what is typed.
    terminal.wait_for("ready> sh -c");
    // The second prompt. What is typed before the shell asks is shown twice.
    terminal.wait_for("\nready>");
    terminal.enter("echo the code is $?");
    terminal.wait_for("\nthe code is 0");
    // A signal ends it in order as well.
    terminal.enter(&top);
    terminal.wait_for("LIMITS by requests");
    let pid = fs::read_to_string(&pid).unwrap();
    let signal =
        |name: &str| Command::new("kill").args([name, pid.trim()]).output().unwrap().status.success();
    assert!(signal("-TERM"));
    eventually("the end of the program", || !signal("-0"));
    terminal.enter("stty -a | tr ' ' '\\n' | grep -cx -e echo -e icanon");
    terminal.wait_for("\n2\n");
}

/// Without a shell between them, only the program itself is told that the terminal is closed.
#[test]
fn a_terminal_that_is_closed_ends_the_program() {
    let serving = serve(&[]);
    let terminal = Terminal::open();
    let pid = file("pid", "");
    let program = env!("CARGO_BIN_EXE_tollway");
    terminal.enter(&format!("exec sh -c 'echo $$ > {pid}; exec {program} top --addr {}'", serving.admin));
    terminal.wait_for("LIMITS by requests");
    let pid = fs::read_to_string(&pid).unwrap();
    drop(terminal);
    let is_there = || Command::new("kill").args(["-0", pid.trim()]).output().unwrap().status.success();
    eventually("the end of the program", || !is_there());
}

#[test]
fn a_server_without_live_figures_is_older() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 512];
        let len = stream.read(&mut asked).unwrap();
        assert!(asked[..len].starts_with(b"GET /v1/live HTTP/1.1\r\n"));
        let body = r#"{"title":"Not found","status":404,"detail":"path \"/v1/live\" does not exist"}"#;
        let answer = format!("HTTP/1.1 404 Not Found\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let ran = run(&["top", "--json", "--addr", &address]);
    server.join().unwrap();
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("a server that is not older than this program"), "{}", ran.stderr);
}
