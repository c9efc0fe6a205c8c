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
    let letters: Vec<char> = word.to_lowercase().chars().collect();
    let mut rows = Rows::default();
    candidates
        .into_iter()
        .take(CANDIDATES_MAX)
        .filter(|candidate| candidate.len() <= WORD_MAX)
        .filter_map(|candidate| {
            let others: Vec<char> = candidate.to_lowercase().chars().collect();
            let most = others.len().div_ceil(3).min(others.len().saturating_sub(1));
            rows.distance(&letters, &others, most).map(|distance| (distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The rows of the table that two words are compared with, kept from one comparison to the next.
#[derive(Default)]
struct Rows {
    before_last: Vec<usize>,
    last: Vec<usize>,
    row: Vec<usize>,
}

impl Rows {
    /// Returns the edit distance, the number of letters inserted, left out, changed or swapped with their neighbour, if
    /// it is at most `most`. A comparison ends as soon as that is certain: clients choose the words, and a server
    /// answers nobody else meanwhile.
    fn distance(&mut self, a: &[char], b: &[char], most: usize) -> Option<usize> {
        let Self { before_last, last, row } = self;
        if a.len().abs_diff(b.len()) > most {
            return None;
        }
        last.clear();
        last.extend(0..=b.len());
        for (i, letter) in a.iter().enumerate() {
            row.clear();
            row.push(i + 1);
            for (j, other) in b.iter().enumerate() {
                let changed = last[j] + usize::from(letter != other);
                let mut best = changed.min(last[j + 1] + 1).min(row[j] + 1);
                if i > 0 && j > 0 && a[i - 1] == *other && *letter == b[j - 1] {
                    best = best.min(before_last[j - 1] + 1);
                }
                row.push(best);
            }
            // A swap goes back two rows, and everything else one.
            if row.iter().chain(&*last).all(|distance| *distance > most) {
                return None;
            }
            std::mem::swap(before_last, last);
            std::mem::swap(last, row);
        }
        last.last().copied().filter(|distance| *distance <= most)
    }
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
            let [a, b] = [a, b].map(|word| word.chars().collect::<Vec<_>>());
            for (a, b) in [(&a, &b), (&b, &a)] {
                assert_eq!(Rows::default().distance(a, b, 7), Some(expected), "{a:?} {b:?}");
                assert_eq!(Rows::default().distance(a, b, expected), Some(expected), "{a:?} {b:?}");
                let fewer = expected.checked_sub(1).and_then(|most| Rows::default().distance(a, b, most));
                assert_eq!(fewer, None, "{a:?} {b:?}");
            }
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
        let [longest, longer] = [64, 65].map(|length| "b".repeat(length));
        assert_eq!(nearest(&longest, [&*longest]), Some(&*longest));
        assert_eq!([nearest(&longer, [&*longest]), nearest(&longest, [&*longer])], [None; 2]);
        assert_eq!(did_you_mean(nearest("perod", fields)), " (did you mean \"period\"?)");
        assert_eq!(did_you_mean(None), "");
    }
}
