//! Writes the results of a benchmark into a page, between `<!-- name -->` and `<!-- /name -->`.

use std::fs;
use std::io;
use std::path::Path;

/// Replaces one section of the page with `text`. The rest of the page stays as it is.
pub fn write_section(page: &Path, name: &str, text: &str) -> io::Result<()> {
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
