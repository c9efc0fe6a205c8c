//! `tollway replay`, the real binary, on traces that are right, wrong, broken and long.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::thread;

use crate::run::{Ran, fed, file, root, run, tollway};

fn replay(trace: &str, options: &[&str]) -> Ran {
    fed(&[&["replay"], options].concat(), trace)
}

#[test]
fn every_trace_of_the_project_is_as_expected_and_comes_out_as_it_went_in() {
    let folders = ["traces", "examples"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let traces = folders.into_iter().flatten().map(|file| file.unwrap().path());
    let mut ran = 0;
    for trace in traces.filter(|path| path.extension().is_some_and(|is| is == "trace")) {
        let config = trace.with_extension("yaml");
        let paths: [&str; 2] = [config.to_str().unwrap(), trace.to_str().unwrap()];
        let once = run(&["replay", "--config", paths[0], paths[1]]);
        assert_eq!((once.code, &*once.stderr), (0, ""), "{}", once.stdout);
        // The output is a trace: replayed, it is as expected, down to the last line.
        let again = replay(&once.stdout, &["--config", paths[0]]);
        assert_eq!(again.code, 0, "{}", again.stdout);
        assert!(again.stdout.contains(" 0 differed, 0 without an expected reply"), "{}", again.stdout);
        assert_eq!(events(&again.stdout), events(&once.stdout));
        ran += 1;
    }
    assert!(ran > 10, "only {ran} traces were found");
}

fn events(output: &str) -> Vec<&str> {
    output.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn a_reply_that_differs_is_marked_and_exits_1() {
    let trace = "\
        # the built-in limit `demo` has a burst of 5\n\
        0s   limit  spend demo:a         => allow remaining=4 retry_after=0s reset_after=2s\n\
        0s   limit  spend demo:a cost=4  => deny\n\
        0s   limit  spend demo:b\n\
        0s   limit  spend demo:a\n\
        1s   limit  check nobody:a       => error\n";
    let ran = replay(trace, &[]);
    assert_eq!(
        ran.stdout,
        "\
0s   limit  spend demo:a         => allow remaining=4 retry_after=0s reset_after=2s
0s   limit  spend demo:a cost=4  => allow remaining=0 retry_after=8s reset_after=10s
#! line 3 expected: deny
0s   limit  spend demo:b  => allow remaining=4 retry_after=0s reset_after=2s
0s   limit  spend demo:a  => deny remaining=0 retry_after=2s reset_after=10s
1s   limit  check nobody:a       => error limit \"nobody\" does not exist
# limit  requests  denied  share  busiest ids
# demo          4       1  25.0%  a 3, b 1
#
# 1 request could not be decided
# 5 events: 2 as expected, 1 differed, 2 without an expected reply
"
    );
    assert_eq!((ran.code, &*ran.stderr), (1, ""));

    let quiet = replay(trace, &["--quiet"]);
    assert_eq!(
        quiet.stdout,
        "\
0s   limit  spend demo:a cost=4  => allow remaining=0 retry_after=8s reset_after=10s
#! line 3 expected: deny
# limit  requests  denied  share  busiest ids
# demo          4       1  25.0%  a 3, b 1
#
# 1 request could not be decided
# 5 events: 2 as expected, 1 differed, 2 without an expected reply
"
    );
    assert_eq!((quiet.code, &*quiet.stderr), (1, ""));
}

#[test]
fn a_trace_of_nothing_is_as_expected() {
    let ran = replay("\n# nothing\n", &["--store", "memory", "-"]);
    assert_eq!(ran.stdout, "# 0 events: 0 as expected, 0 differed, 0 without an expected reply\n");
    assert_eq!(ran.code, 0);
}

#[test]
fn a_denial_counts_for_the_limit_that_decided() {
    let trace = "\
        0s  limit  spend demo:a LoginsPerAccount:a cost=5\n\
        0s  limit  spend demo:a LoginsPerAccount:a\n\
        0s  limit  refund demo:a\n";
    let ran = replay(trace, &["-q"]);
    let table = "\
# limit             requests  denied  share  busiest ids
# LoginsPerAccount         2       1  50.0%  a 2
# demo                     2       0   0.0%  a 2
";
    assert!(ran.stdout.starts_with(table), "{}", ran.stdout);
}

#[test]
fn a_broken_trace_names_the_place_and_exits_2() {
    for (trace, message) in [
        (
            "0s limit spend demo:a\n0s limit spend",
            "tollway: (stdin):2:15: at least one charge or rule must follow",
        ),
        ("0s limit spend demo:a cost=-1\n", "tollway: (stdin):1:28: \"-1\" is not a cost"),
        ("1s limit spend demo:a\n0s limit spend demo:a\n", "tollway: (stdin):2:1: times must not go back"),
        ("0s http GET /\n", "tollway: (stdin):1:4: gate \"http\" does not exist; use limit"),
    ] {
        let ran = replay(trace, &[]);
        assert!(ran.stderr.starts_with(message), "{}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1);
        assert_eq!(ran.code, 2);
        // What came before the bad line was answered, and nothing pretends that it was all.
        assert_eq!(ran.stdout.lines().count(), trace.lines().count() - 1);
    }
}

#[test]
fn what_cannot_be_read_exits_2() {
    let folder = root().join("traces");
    let folder = folder.to_str().unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["replay", "no-such.trace"], "tollway: cannot read \"no-such.trace\": "),
        (&["replay", folder], &format!("tollway: {folder}:1: this line cannot be read: ")),
        (&["replay", "--config", "no-such.yaml"], "tollway: no-such.yaml: cannot be read: "),
        (
            &["replay", "--store", "carrier-pigeon"],
            "tollway: --store must be memory, or a URL such as redis://cache:6379, not \"carrier-pigeon\"",
        ),
        (&["replay", "--frobnicate"], "error: unexpected argument '--frobnicate' found"),
    ];
    for (arguments, message) in cases {
        let ran = run(arguments);
        assert!(ran.stderr.starts_with(message), "{arguments:?}: {}", ran.stderr);
        assert_eq!((ran.code, &*ran.stdout), (2, ""));
    }
}

#[test]
fn an_invalid_configuration_is_reported_whole_and_exits_2() {
    let policy =
        file("bad.yaml", "limits:\n  A: { burst: 0, count: 1, period: 1s }\n  B: { burst: 1, count: 1 }\n");
    let ran = run(&["replay", "--config", &policy]);
    assert_eq!((ran.code, ran.stderr.lines().count()), (2, 2), "{}", ran.stderr);
    assert!(ran.stderr.contains("bad.yaml:2:15:") && ran.stderr.contains("bad.yaml:3:3:"), "{}", ran.stderr);
}

#[test]
fn a_million_lines_stream_through() {
    const LINES: u64 = 1_000_000;
    let mut child = tollway(&["replay", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = thread::spawn(move || {
        let mut chunk = Vec::new();
        for n in 0..LINES {
            // `hot` comes every fourth time, 250 times a second, and has 5 per 10 s; the others come twice in all.
            let id = if n % 4 == 0 { "hot".to_owned() } else { format!("id{}", n % (LINES / 2)) };
            writeln!(chunk, "{}.{:03}s limit spend demo:{id}", n / 1000, n % 1000).unwrap();
            if chunk.len() > 1 << 16 {
                stdin.write_all(&chunk).unwrap();
                chunk.clear();
            }
        }
        stdin.write_all(&chunk).unwrap();
    });
    let (mut allowed, mut denied, mut last) = (0, 0, Vec::new());
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.split_once("=> ") {
            Some((_, reply)) if reply.starts_with("allow ") => allowed += 1,
            Some((_, reply)) if reply.starts_with("deny ") => denied += 1,
            _ => last.push(line),
        }
    }
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(allowed + denied, LINES);
    // Of `hot`, 5 at once and then one every 2 s: the last second of 1000 is not quite reached.
    assert_eq!(denied, 250_000 - 5 - 499);
    let share = format!("# demo    1000000  {denied}  24.9%  hot 250000");
    assert!(last[1].starts_with(&share), "{last:?}");
    assert_eq!(last[3], "# 1000000 events: 0 as expected, 0 differed, 1000000 without an expected reply");
}

#[test]
fn whoever_reads_may_leave() {
    let trace = "0s limit spend demo:a\n".repeat(100_000);
    let long = file("long.trace", &trace);
    let mut child =
        tollway(&["replay", &long]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("0s limit spend demo:a  => allow"));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), &*stderr), (Some(141), ""));
}
