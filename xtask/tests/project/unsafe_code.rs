//! Tests that `unsafe` code is in one file only, which Miri and its own comment cover.

use std::fs;
use std::path::{Path, PathBuf};

/// The only file that may have `unsafe` code.
const ALLOWED: &str = "crates/tollway/src/prefetch.rs";

/// The folders with code of the workspace.
const FOLDERS: &[&str] =
    &["bench", "crates", "examples", "fuzz/fuzz_targets", "simulator", "testbed", "xtask/src"];

/// Beginnings of `unsafe` code, and attributes that allow it.
const MARKS: &[&str] = &[
    "unsafe {",
    "unsafe fn",
    "unsafe impl",
    "unsafe trait",
    "unsafe extern",
    "unsafe(",
    "allow(unsafe_code",
    "expect(unsafe_code",
];

#[test]
fn unsafe_code_is_in_one_file() {
    let mut files = Vec::new();
    for folder in FOLDERS {
        rust_files(&Path::new("..").join(folder), &mut files);
    }
    let is_unsafe = |file: &&PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        text.lines()
            .any(|line| !line.trim_start().starts_with("//") && MARKS.iter().any(|mark| line.contains(mark)))
    };
    let found: Vec<_> = files.iter().filter(is_unsafe).collect();
    assert!(files.len() > 500, "{} files", files.len());
    assert_eq!(found, [&Path::new("..").join(ALLOWED)], "only {ALLOWED} may have unsafe code");
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.path() {
            path if path.is_dir() && path.file_name().is_some_and(|name| name != "target") => {
                rust_files(&path, files)
            }
            path if path.extension().is_some_and(|extension| extension == "rs") => files.push(path),
            _ => {}
        }
    }
}
