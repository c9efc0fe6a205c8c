//! Paths whose requests are not counted.

/// The paths that are exempt: single paths, and subtrees with everything below a root.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExemptPaths {
    paths: Vec<Box<str>>,
    subtrees: Vec<Box<str>>,
}

impl ExemptPaths {
    pub(crate) fn add_path(&mut self, path: &str) {
        self.paths.push(path.into());
    }

    pub(crate) fn add_subtree(&mut self, root: &str) {
        self.subtrees.push(root.trim_end_matches('/').into());
    }

    pub(crate) fn contains(&self, path: &str) -> bool {
        self.paths.iter().any(|exempt| **exempt == *path)
            || self.subtrees.iter().any(|root| is_below(root, path))
    }
}

/// Returns true if `path` is the root, or lies below it.
fn is_below(root: &str, path: &str) -> bool {
    path.strip_prefix(root)
        .is_some_and(|rest| (rest.is_empty() || rest.starts_with('/')) && !has_parent_segment(rest))
}

/// Returns true if a service that resolves `..` might leave the subtree: such a path could reach anything.
fn has_parent_segment(rest: &str) -> bool {
    let plain: Vec<u8> = rest.bytes().map(|byte| byte.to_ascii_lowercase()).collect();
    plain.windows(2).any(|two| two == b"..") || plain.windows(3).any(|three| three == b"%2e")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_and_everything_below_a_subtree_are_exempt() {
        let mut exempt = ExemptPaths::default();
        exempt.add_path("/healthz");
        exempt.add_subtree("/static/");
        for (path, expected) in [
            ("/healthz", true),
            ("/healthz/", false),
            ("/healthz/x", false),
            ("/static", true),
            ("/static/", true),
            ("/static/css/a.css", true),
            ("/static/a%20b.css", true),
            ("/statics", false),
            ("/static/../login", false),
            ("/static/%2E%2e/login", false),
            ("/static/.%2e/login", false),
            ("/", false),
            ("", false),
            ("*", false),
        ] {
            assert_eq!(exempt.contains(path), expected, "{path}");
        }
        assert!(!ExemptPaths::default().contains(""));
    }
}
