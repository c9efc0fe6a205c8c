//! Prints what breaks the rules of plain words.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xtask::words::{Count, Finding, PARTS, files_in, names, width};

/// Prints every offender of the paths, or of all parts of the workspace, and their rates.
pub(crate) fn run(paths: &[PathBuf]) -> Result<()> {
    if paths.is_empty() { whole_workspace() } else { some_paths(paths) }
}

fn whole_workspace() -> Result<()> {
    let root = Path::new("");
    let mut rates = Vec::new();
    let mut sources = Vec::new();
    for part in PARTS {
        let files = part.files(root).with_context(|| format!("cannot list {}", part.folder))?;
        let count = Count::of(&files)?;
        count.offenders.iter().for_each(|offender| println!("{offender}"));
        rates.push((part.name.to_owned(), count));
        sources.extend(files);
    }
    let pages = width::pages(root)?;
    print_all("Lines of prose wider than 120 columns", &width::too_wide(&[sources.clone(), pages].concat())?);
    println!("\nPublic type names that are defined more than once:");
    for (name, places) in names::defined_twice(&sources)? {
        println!("{name}: {}", places.join(", "));
    }
    print_rates(&rates);
    Ok(())
}

fn some_paths(paths: &[PathBuf]) -> Result<()> {
    let mut rates = Vec::new();
    for path in paths {
        let is_page = path.extension().is_some_and(|extension| extension == "md");
        let files = files_in(path, "rs").with_context(|| format!("cannot read {}", path.display()))?;
        let pages = if path.is_dir() { files_in(path, "md")? } else { Vec::new() };
        let count = if is_page { Count::default() } else { Count::of(&files)? };
        count.offenders.iter().for_each(|offender| println!("{offender}"));
        print_all("Lines of prose wider than 120 columns", &width::too_wide(&[files, pages].concat())?);
        rates.push((path.display().to_string(), count));
    }
    print_rates(&rates);
    Ok(())
}

fn print_all(heading: &str, findings: &[Finding]) {
    if !findings.is_empty() {
        println!("\n{heading}:");
        findings.iter().for_each(|finding| println!("{finding}"));
    }
}

fn print_rates(rates: &[(String, Count)]) {
    println!("\nSummaries that are questions, fragments or have no verb:");
    for (name, count) in rates {
        let (found, all) = (count.offenders.len(), count.summaries);
        println!("{:>6.1} %  {found:>4} of {all:>4}  {name}", count.rate());
    }
}
