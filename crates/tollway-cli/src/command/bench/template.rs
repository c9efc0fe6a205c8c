//! One request, encoded once; from then on only the digits of its key are written over.

use std::convert::Infallible;
use std::ops::Range;

/// `00` to `99`.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0_u8;
    while n < 100 {
        pairs[n as usize] = [b'0' + n / 10, b'0' + n % 10];
        n += 1;
    }
    pairs
};

/// A request of which only the key's digits change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    frame: Vec<u8>,
    digits: Range<usize>,
}

impl Template {
    /// What `encode` makes of a key whose number is as wide as those of `keys` keys. It must not count the digits: two
    /// keys of one width are two frames that differ in the digits alone.
    pub(super) fn new<E>(keys: u64, encode: impl Fn(&str) -> Result<Vec<u8>, E>) -> Result<Self, E> {
        let width = keys.saturating_sub(1).max(1).ilog10() as usize + 1;
        let (frame, nines) = (encode(&"0".repeat(width))?, encode(&"9".repeat(width))?);
        let digits = differing(&frame, &nines);
        Ok(Self { frame, digits })
    }

    /// The same, where nothing is too long for the protocol.
    pub(super) fn of(keys: u64, encode: impl Fn(&str) -> Vec<u8>) -> Self {
        let Ok(template) = Self::new::<Infallible>(keys, |digits| Ok(encode(digits)));
        template
    }

    /// The request about key 0.
    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// This many of them, one after the other.
    pub(super) fn repeated(&self, times: usize) -> Vec<u8> {
        self.frame.repeat(times)
    }

    /// Makes `frame`, one of these, ask about `key`.
    #[inline]
    pub(super) fn stamp(&self, frame: &mut [u8], key: u64) {
        put_digits(&mut frame[self.digits.clone()], key);
    }
}

/// Where two frames of one length differ.
pub(super) fn differing(one: &[u8], other: &[u8]) -> Range<usize> {
    let differs = |at: &usize| one[*at] != other[*at];
    let first = (0..one.len()).find(differs).unwrap_or(0);
    let last = (0..one.len()).rfind(differs).map_or(0, |last| last + 1);
    first..last
}

/// Writes `number` with leading zeros; what does not fit in front is left out.
#[inline]
pub(super) fn put_digits(place: &mut [u8], mut number: u64) {
    let mut pairs = place.rchunks_exact_mut(2);
    for pair in &mut pairs {
        pair.copy_from_slice(&PAIRS[(number % 100) as usize]);
        number /= 100;
    }
    if let [first] = pairs.into_remainder() {
        *first = b'0' + (number % 10) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_formatting_machinery() {
        for width in 0..=20 {
            for number in [0, 1, 9, 10, 99, 100, 12_345, 999_999, 1_000_000, u64::from(u32::MAX), u64::MAX] {
                let mut place = vec![b'x'; width];
                put_digits(&mut place, number);
                let all = format!("{number:020}");
                assert_eq!(place, &all.as_bytes()[20 - width..], "{number} in {width}");
            }
        }
    }

    #[test]
    fn a_template_asks_about_any_key() {
        let encode = |digits: &str| format!("<9 get k{digits}-0>").into_bytes();
        for (keys, key, expected) in
            [(1, 0, "<9 get k0-0>"), (10, 9, "<9 get k9-0>"), (1_001, 42, "<9 get k0042-0>")]
        {
            let template = Template::of(keys, encode);
            let mut two = template.repeated(2);
            template.stamp(&mut two[template.frame().len()..], key);
            assert_eq!(&two[template.frame().len()..], expected.as_bytes());
            assert_eq!(&two[..template.frame().len()], template.frame());
        }
    }
}
