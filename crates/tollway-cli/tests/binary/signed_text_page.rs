//! Checks that the section about signed datagrams of `docs/text.md` works as shown.

use std::process::Command;

use crate::page::Page;
use crate::run::{file, run};
use crate::serving::Serving;

#[test]
fn the_client_in_python_and_the_command_line_are_answered() {
    let page = Page::read("docs/text.md");
    let keys = page.blocks("text").into_iter().find(|block| block.contains("text-keys.txt")).unwrap();
    let key_line = keys.lines().find(|line| !line.starts_with('#')).unwrap();
    let (name, secret) = key_line.split_once(' ').unwrap();
    let key_file = file("text-keys.txt", keys);
    let config = file("signed_text_page.yaml", page.block("yaml"));
    let serving = Serving::start(&["--config", &config, "--http", "127.0.0.1:0"], &[]);
    let addr = serving.printed.split("udp ").nth(1).unwrap().lines().next().unwrap();
    let (host, port) = addr.rsplit_once(':').unwrap();
    // The first use of a key is at a rate of 0, and each of the next ones adds nearly one.
    let calls = format!(
        "\nfor _ in range(4): print(over_limit((\"{host}\", {port}), \"ws global\", \"{name}\", \"{secret}\"))\n"
    );
    let patient = page.block("python").replace("settimeout(0.1)", "settimeout(20)");
    let output = Command::new("python3").args(["-c", &(patient + &calls)]).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "False\nFalse\nTrue\nTrue\n");
    let asked = ["text", "--addr", addr, "--timeout", "20s", "--key-file", &key_file, "ping"];
    let ran = run(&asked);
    assert_eq!((ran.code, &*ran.stdout), (0, "pong\n"), "{}", ran.stderr);
    let ran = run(&["text", "--addr", addr, "--timeout", "50ms", "ping"]);
    assert_eq!((ran.code, &*ran.stdout), (2, ""), "without a key: {}", ran.stderr);
}

#[test]
fn a_wrong_key_file_is_explained_without_its_secret() {
    let two = format!("web {0}\nbilling {0}\n", "5ec4e7".repeat(8));
    for (content, expected) in [
        (&*two, "has several keys"),
        ("web 5ec4e7", "line 1: a secret has 32 to 128 hexadecimal digits"),
        ("", "there is no key in the file"),
    ] {
        let path = file("wrong_text.key", content);
        let ran = run(&["text", "--key-file", &path, "ping"]);
        assert_eq!(ran.code, 2);
        assert!(ran.stderr.contains(expected) && !ran.stderr.contains("5ec4e7"), "{}", ran.stderr);
    }
    let ran = run(&["text", "--key-file", "no/such/file", "ping"]);
    assert!(ran.stderr.contains("the key cannot be read from no/such/file"), "{}", ran.stderr);
}
