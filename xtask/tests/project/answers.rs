//! Holds answers and errors to their attributes: an answer must be used, and both may get fields and cases later.

use std::fs;
use std::path::Path;

/// The last words of the names that answers have.
const ANSWERS: [&str; 13] = [
    "Answer",
    "Decision",
    "Explanation",
    "Health",
    "Inspection",
    "Outcome",
    "Page",
    "Reading",
    "Refund",
    "Reply",
    "Response",
    "Stats",
    "Verdict",
];

/// Types that are named like an answer and lack an attribute, each with the reason.
const EXCEPTIONS: [(&str, &str); 4] = [
    ("Verdict", "its doc says why it can be matched exhaustively"),
    ("VerbAnswer", "it has a case for each verb, and a gate must answer each"),
    ("KeyOutcome", "it has a case for each kind of key, and a gate must answer each"),
    ("ReceivedReply", "the commands of the text protocol are fixed, and so are the replies to them"),
];

#[test]
fn answers_must_be_used_and_answers_and_errors_are_not_exhaustive() {
    let mut missing = Vec::new();
    for crate_name in ["tollway-core", "tollway-wire", "tollway"] {
        check_folder(&Path::new("../crates").join(crate_name).join("src"), &mut missing);
    }
    assert!(missing.is_empty(), "attributes are missing:\n{}", missing.join("\n"));
}

fn check_folder(folder: &Path, missing: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.path() {
            path if path.is_dir() => check_folder(&path, missing),
            path => check_file(&path, missing),
        }
    }
}

fn check_file(path: &Path, missing: &mut Vec<String>) {
    let text = fs::read_to_string(path).unwrap();
    // An item and all that stands above it, up to an empty line.
    for item in text.split("\n\n").filter_map(|block| block.split_once("\npub ")) {
        let (above, Some(rest)) = (item.0, item.1.strip_prefix("struct ").or(item.1.strip_prefix("enum ")))
        else {
            continue;
        };
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
        let answers = ANSWERS.iter().any(|word| name.ends_with(word));
        let fails = name.ends_with("Error") || above.contains("Error)]");
        let is_open = item.1.starts_with("enum ") || rest.contains("\n    pub ");
        let lacks = |attribute: &str| !above.contains(&format!("#[{attribute}"));
        if EXCEPTIONS.iter().any(|(exempt, _)| *exempt == name) {
            continue;
        }
        if answers && lacks("must_use") || (answers || fails) && is_open && lacks("non_exhaustive") {
            missing.push(format!("{}: {name}", path.display()));
        }
    }
}
