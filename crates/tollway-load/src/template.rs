//! One request, encoded once. Every request is a copy of it in which only the digits of the key differ.

use std::ops::Range;

use crate::keys::KeySpace;

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

/// A request that is encoded once, and the place of its key's digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    frame: Vec<u8>,
    key: Range<usize>,
    keys: u64,
}

impl Template {
    /// Creates the template from what `encode` makes of a key. All keys have the same width, so that two requests
    /// differ in the digits alone.
    pub fn new(keys: &KeySpace, encode: impl Fn(&str) -> Vec<u8>) -> Self {
        let frame = encode(&keys.all('0'));
        let key = differing(&frame, &encode(&keys.all('9')));
        Self { frame, key, keys: keys.count }
    }

    /// Returns the request for key 0.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Returns the place of the key's digits in the frame.
    pub(crate) fn key(&self) -> Range<usize> {
        self.key.clone()
    }

    /// Returns the number of different keys.
    pub(crate) const fn keys(&self) -> u64 {
        self.keys
    }

    /// Writes another key into a copy of the frame.
    #[inline]
    pub(crate) fn write_key(&self, frame: &mut [u8], key: u64) {
        write_digits(&mut frame[self.key.clone()], key);
    }
}

/// Returns the range in which two frames of one length differ.
pub(crate) fn differing(one: &[u8], other: &[u8]) -> Range<usize> {
    let differs = |at: &usize| one[*at] != other[*at];
    let first = (0..one.len()).find(differs).unwrap_or(0);
    let last = (0..one.len()).rfind(differs).map_or(0, |last| last + 1);
    first..last
}

/// Writes `number` with leading zeros. Digits that do not fit at the front are left out.
#[inline]
pub(crate) fn write_digits(place: &mut [u8], mut number: u64) {
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
                write_digits(&mut place, number);
                let all = format!("{number:020}");
                assert_eq!(place, &all.as_bytes()[20 - width..], "{number} in {width}");
            }
        }
    }

    #[test]
    fn a_template_has_room_for_any_key() {
        for (count, key, expected) in
            [(1, 0, "<9 get k0-0>"), (10, 9, "<9 get k9-0>"), (1_001, 42, "<9 get k0042-0>")]
        {
            let keys = KeySpace { format: "k{}-0".parse().unwrap(), count };
            let template = Template::new(&keys, |key| format!("<9 get {key}>").into_bytes());
            let mut frame = template.frame().to_vec();
            template.write_key(&mut frame, key);
            assert_eq!(frame, expected.as_bytes());
        }
    }
}
