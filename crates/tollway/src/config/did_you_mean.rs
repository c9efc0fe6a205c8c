//! Finds the field that was probably meant by a misspelt one, or by its name in another rate limiter.

/// Names that other rate limiters use, each with the name that this file has for it.
const SYNONYMS: [(&str, &str); 14] = [
    ("capacity", "burst"),
    ("max_burst", "burst"),
    ("limit", "count"),
    ("rate", "count"),
    ("requests", "count"),
    ("requests_per_unit", "count"),
    ("per", "period"),
    ("interval", "period"),
    ("window", "period"),
    ("unit", "period"),
    ("count", "limit"),
    ("regex", "match"),
    ("pattern", "match"),
    ("replacement", "replace"),
];

/// Returns ` (did you mean "burst"?)`, or an empty text if no candidate is similar.
pub(super) fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    tollway_core::nearest::did_you_mean(nearest(word, candidates))
}

/// Returns the candidate that is another name of `word`, or is most similar to it.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let lower = word.to_lowercase();
    let meant = SYNONYMS.iter().find(|(theirs, _)| *theirs == lower).map(|(_, ours)| *ours);
    let synonym = meant.and_then(|meant| candidates.iter().copied().find(|candidate| *candidate == meant));
    synonym.or_else(|| tollway_core::nearest::nearest(word, candidates))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_rate_limiters_are_understood() {
        let fields = ["burst", "count", "period", "on_full"];
        for (word, expected) in [
            ("window", Some("period")),
            ("capacity", Some("burst")),
            ("brust", Some("burst")),
            ("zebra", None),
        ] {
            assert_eq!(nearest(word, fields), expected, "{word}");
        }
        assert_eq!(nearest("window", ["burst"]), None);
        assert_eq!(did_you_mean("perod", fields), " (did you mean \"period\"?)");
    }
}
