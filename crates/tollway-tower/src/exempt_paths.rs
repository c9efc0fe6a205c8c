//! Paths that are not limited.

/// Whole paths, and paths that everything below is skipped with.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExemptPaths {
    paths: Vec<Box<str>>,
    trees: Vec<Box<str>>,
}

impl ExemptPaths {
    pub(crate) fn path(&mut self, path: &str) {
        self.paths.push(path.into());
    }

    pub(crate) fn tree(&mut self, root: &str) {
        self.trees.push(root.trim_end_matches('/').into());
    }

    pub(crate) fn contains(&self, path: &str) -> bool {
        self.paths.iter().any(|skipped| **skipped == *path) || self.trees.iter().any(|root| below(root, path))
    }
}

/// Is this the root, or below it?
fn below(root: &str, path: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| (rest.is_empty() || rest.starts_with('/')) && !climbs(rest))
}

/// Might this lead up again, for a service that resolves it? Then it may lead anywhere, and is not skipped.
fn climbs(rest: &str) -> bool {
    let plain: Vec<u8> = rest.bytes().map(|byte| byte.to_ascii_lowercase()).collect();
    plain.windows(2).any(|two| two == b"..") || plain.windows(3).any(|three| three == b"%2e")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_is_the_path_and_what_is_below_a_tree() {
        let mut skip = ExemptPaths::default();
        skip.path("/healthz");
        skip.tree("/static/");
        for (path, skipped) in [
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
            assert_eq!(skip.contains(path), skipped, "{path}");
        }
        assert!(!ExemptPaths::default().contains(""));
    }
}
