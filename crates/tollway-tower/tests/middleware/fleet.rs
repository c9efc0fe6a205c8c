//! Runs `examples/fleet` as its page shows.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use tollway_testbed::eventually;

/// Returns the example's command. Cargo builds it with the tests, unless only some of them are built.
fn example() -> Command {
    let test = env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let example = profile.join("examples/fleet");
    if !example.is_file() {
        let release = (!cfg!(debug_assertions)).then_some("--release");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--example", "fleet"]).args(release);
        build.arg("--target-dir").arg(profile.parent().unwrap());
        assert!(build.status().unwrap().success());
    }
    Command::new(example)
}

/// Returns the number of a client's requests that passed at once, passed after a wait, and were rejected.
fn totals(printed: &str, client: &str) -> [u32; 3] {
    let line = printed.lines().find(|line| line.starts_with(&format!("{client}, "))).unwrap();
    let numbers = line.split_once(": ").unwrap().1.split(", ");
    let numbers: Vec<u32> =
        numbers.map(|number| number.split(' ').next().unwrap().parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

#[test]
fn greed_is_held_to_its_limit_at_two_services_and_modesty_notices_nothing() {
    let started = Instant::now();
    let output = example().args(["--seconds", "3"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    let [at_once, waited, rejected] = totals(&printed, "greedy");
    assert_eq!(at_once + waited + rejected, 60, "{printed}");
    // Eight, and those that pass before the services receive the first delay. Then four a second, over the time that it
    // really took.
    let by_the_rate = 4.0 * started.elapsed().as_secs_f64() + 1.0;
    assert!(at_once >= 8 && waited > 0 && rejected > 0 && f64::from(waited) <= by_the_rate, "{printed}");
    assert_eq!(totals(&printed, "modest"), [6, 0, 0], "{printed}");
}

#[test]
fn what_it_started_ends_with_it_however_it_ends() {
    let mut example = example().arg("--stay").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(example.stdout.take().unwrap()).lines();
    assert!(printed.any(|line| line.unwrap().starts_with("Ask them")), "it stays");
    example.kill().unwrap();
    example.wait().unwrap();
    // All processes inherit this pipe, so it closes when the last of them ends.
    let mut errors = example.stderr.take().unwrap();
    let gone = thread::spawn(move || errors.read_to_string(&mut String::new()));
    eventually("the end of all processes", || gone.is_finished());
}
