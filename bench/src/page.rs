//! Writes the results of a benchmark into `docs/benchmarks.md`, between `<!-- name -->` and `<!-- /name -->`.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use crate::options::Options;

/// Prints the results of a benchmark, and writes them into its section of the page if the run was complete.
///
/// `command` is what somebody would type to measure again. The section begins with it, and with the commit.
pub fn publish(options: &Options, command: &str, section: &str, results: &str) -> io::Result<()> {
    println!("{results}");
    if !options.is_complete() {
        eprintln!("a short run, which is not written into docs/benchmarks.md");
        return Ok(());
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks.md");
    write_section(&page, section, &format!("{}\n\n{results}", measured_by(command)?))
}

/// Returns the line that says by which command and at which commit something was measured. A project test requires it.
fn measured_by(command: &str) -> io::Result<String> {
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--", ".", ":!docs", ":!*.md"])?;
    let changes = if changed.trim().is_empty() { "" } else { ", with changes on top" };
    Ok(format!("Measured by `{command}` at commit {}{changes}, on {}.", commit.trim(), processor()))
}

/// Returns the name of the processor: ratios depend on its caches.
fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| "an unknown processor".to_owned(), |(_, name)| name.to_owned())
}

fn git(arguments: &[&str]) -> io::Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("git").current_dir(root).args(arguments).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Replaces one section of the page with `text`. The rest of the page stays as it is.
fn write_section(page: &Path, name: &str, text: &str) -> io::Result<()> {
    let before = fs::read_to_string(page)?;
    let after = with_section(&before, name, text)
        .ok_or_else(|| io::Error::other(format!("{} has no place for {name}", page.display())))?;
    fs::write(page, after)
}

fn with_section(page: &str, name: &str, text: &str) -> Option<String> {
    let (opening, closing) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let (before, rest) = page.split_once(&opening)?;
    let (_, after) = rest.split_once(&closing)?;
    Some(format!("{before}{opening}{text}{closing}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_changes() {
        let page = "above\n<!-- a -->\nold\n<!-- /a -->\nbelow\n";
        assert_eq!(with_section(page, "a", "new\n").unwrap(), "above\n<!-- a -->\nnew\n<!-- /a -->\nbelow\n");
        assert_eq!(with_section(page, "b", "new\n"), None);
    }
}
