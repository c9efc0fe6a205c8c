//! Finds the word that was probably meant by a misspelt one, for "did you mean `login`?" in error messages.

/// The longest word that is compared. Comparing takes quadratic time, and fields and limits have short names.
const WORD_MAX: usize = 64;
/// The most candidates that are compared, so that an unknown name costs little, whoever sends it.
const CANDIDATES_MAX: usize = 1_000;

/// Returns ` (did you mean "login"?)`, or an empty text if there is no such word.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|word| format!(" (did you mean \"{word}\"?)")).unwrap_or_default()
}

/// Returns the candidate that is most similar to `word`, if any is similar enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_MAX {
        return None;
    }
    let lower = word.to_lowercase();
    candidates
        .into_iter()
        .take(CANDIDATES_MAX)
        .filter(|candidate| candidate.len() <= WORD_MAX)
        .filter_map(|candidate| {
            let distance = distance(&lower, &candidate.to_lowercase());
            let letters = candidate.chars().count();
            (distance <= letters.div_ceil(3) && distance < letters).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the edit distance: the number of letters inserted, left out, changed or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let mut a_before = None;
    for (i, a) in a.chars().enumerate() {
        let mut row = vec![i + 1];
        for (j, other) in b.iter().enumerate() {
            let changed = last[j] + usize::from(a != *other);
            let mut best = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if j > 0 && a_before == Some(*other) && a == b[j - 1] {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
        a_before = Some(a);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_the_slips_of_a_typist() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("burst", "burst", 0),
            ("brust", "burst", 1),
            ("bust", "burst", 1),
            ("burrst", "burst", 1),
            ("bursd", "burst", 1),
            ("kitten", "sitting", 3),
            ("ab", "ba", 1),
            ("äb", "ab", 1),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
    }

    #[test]
    fn the_nearest_is_suggested_and_only_if_it_is_near() {
        let fields = ["burst", "count", "period", "on_full"];
        for (word, expected) in [
            ("brust", Some("burst")),
            ("Burst", Some("burst")),
            ("coutn", Some("count")),
            ("onfull", Some("on_full")),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, fields), expected, "{word}");
        }
        assert_eq!(nearest("B", ["A"]), None);
        assert_eq!(nearest(&"b".repeat(1_000), fields), None);
        assert_eq!(did_you_mean(nearest("perod", fields)), " (did you mean \"period\"?)");
        assert_eq!(did_you_mean(None), "");
    }
}
