//! Parses a command that differs from the one before it in its key alone, without looking at its numbers again.

use super::KEY_MAX;
use super::throttle::ThrottleRequest;
use super::words::length;

/// The bytes of a line end.
const LINE_END: usize = 2;

/// The most bytes of a template before the length of its key, and after its key. Numbers that are longer, with zeros
/// before them, make no template.
const BEFORE_MAX: usize = 32;
const AFTER_MAX: usize = 112;

/// The numbers of a `CL.THROTTLE` or `THROTTLE` that was parsed, and the bytes around its key. A client nearly always
/// sends the same numbers again, with another key, and so do the other clients of a server: so a template outlives the
/// bytes that it was made from.
#[derive(Clone, Debug)]
pub struct ThrottleTemplate {
    before: [u8; BEFORE_MAX],
    before_len: usize,
    after: [u8; AFTER_MAX],
    after_len: usize,
    request: ThrottleRequest<'static>,
}

impl ThrottleTemplate {
    /// Creates the template of a command that was parsed from these bytes, or `None` if they are plain text or long.
    pub fn new(command: &[u8], request: &ThrottleRequest<'_>) -> Option<Self> {
        let (_, name) = marked_length(command, b'*', 0)?;
        let (_, name_end) = string(command, name)?;
        let key = name_end + LINE_END;
        let (start, end) = string(command, key)?;
        let (before, after) = (&command[..=key], &command[end..]);
        let mut template = Self {
            before: [0; BEFORE_MAX],
            before_len: before.len(),
            after: [0; AFTER_MAX],
            after_len: after.len(),
            request: request.with_key(b""),
        };
        template.before.get_mut(..before.len())?.copy_from_slice(before);
        template.after.get_mut(..after.len())?.copy_from_slice(after);
        (command.get(start..end) == Some(request.key)).then_some(template)
    }

    /// Returns the request that its commands make, without a key.
    #[inline]
    pub const fn request(&self) -> &ThrottleRequest<'static> {
        &self.request
    }

    /// Parses the command at the start of `inbox`, and returns its key, and its length in bytes. Returns `None` if it
    /// differs in more than its key, has a long key, or has not arrived: then it is to be decoded.
    #[inline]
    pub fn parse<'a>(&self, inbox: &'a [u8]) -> Option<(&'a [u8], usize)> {
        if !inbox.starts_with(&self.before[..self.before_len]) {
            return None;
        }
        let (len, start) = length(inbox, self.before_len).ok()??;
        let after = &self.after[..self.after_len];
        if len > KEY_MAX || !inbox.get(start + len..)?.starts_with(after) {
            return None;
        }
        Some((&inbox[start..start + len], start + len + after.len()))
    }
}

/// Returns the places where the string at this place starts and ends.
fn string(command: &[u8], at: usize) -> Option<(usize, usize)> {
    let (len, start) = marked_length(command, b'$', at)?;
    let end = start.checked_add(len)?;
    (end <= command.len()).then_some((start, end))
}

/// Parses the length behind this mark, and returns it with the place after its line.
fn marked_length(command: &[u8], mark: u8, at: usize) -> Option<(usize, usize)> {
    if command.get(at) != Some(&mark) {
        return None;
    }
    length(command, at + 1).ok()?
}

#[cfg(test)]
mod tests {
    use super::super::{Decoded, RespCommand, Words, decode, encode_command};
    use super::*;

    fn parsed(bytes: &[u8]) -> Option<(ThrottleRequest<'_>, usize)> {
        let mut words = Words::new();
        let Ok(Some((Decoded::Command, len))) = decode(bytes, &mut words) else { return None };
        match RespCommand::parse(&words) {
            Ok(RespCommand::Throttle(request)) => Some((request, len)),
            _ => None,
        }
    }

    fn encoded(words: &[&str]) -> Vec<u8> {
        let (words, mut bytes) = (words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>(), Vec::new());
        encode_command(&words, &mut bytes);
        bytes
    }

    /// Whatever a template parses is what the decoder and the parser make of the same bytes.
    #[test]
    fn a_template_parses_what_the_parser_parses() {
        let (long, longer) = ("k".repeat(KEY_MAX), "k".repeat(KEY_MAX + 1));
        let mut commands: Vec<Vec<u8>> = Vec::new();
        for name in ["CL.THROTTLE", "THROTTLE", "cl.throttle"] {
            for key in ["", "a", "$1", "a\r\n", "twelve bytes", &long, &longer] {
                for numbers in [["15", "30", "60"], ["15", "30", "61"], ["1", "30", "60"]] {
                    commands.push(encoded(&[name, key, numbers[0], numbers[1], numbers[2]]));
                    commands.push(encoded(&[name, key, numbers[0], numbers[1], numbers[2], "2"]));
                }
            }
        }
        commands.push(b"CL.THROTTLE a 15 30 60\r\n".to_vec());
        commands.push(b"*5\r\n$11\r\nCL.THROTTLE\r\n:7\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n".to_vec());
        commands.push(b"*4\r\n$11\r\nCL.THROTTLE\r\n$1\r\na\r\n$2\r\n15\r\n$2\r\n30\r\n".to_vec());
        commands.push(b"*1\r\n$4\r\nPING\r\n".to_vec());

        let mut by_template = 0;
        for template in &commands {
            let Some((request, len)) = parsed(template) else { continue };
            assert_eq!(len, template.len());
            let Some(template) = ThrottleTemplate::new(template, &request) else { continue };
            for command in &commands {
                let twice = [command.as_slice(), command].concat();
                if let Some((key, len)) = template.parse(&twice) {
                    assert_eq!(Some((template.request().with_key(key), len)), parsed(&twice));
                    by_template += 1;
                }
                for cut in 0..command.len() {
                    assert_eq!(template.parse(&command[..cut]), None, "its rest has not arrived");
                }
            }
        }
        // Three names, three numbers, with and without a quantity: each of six keys finds the six.
        assert_eq!(by_template, 3 * 3 * 2 * 6 * 6);
    }

    #[test]
    fn the_longest_integers_make_a_template_and_zeros_before_them_do_not() {
        let longest = encoded(&["CL.THROTTLE", "a", "9223372036854775806", "1", "0000000000000000001", "1"]);
        let (words, zeros) = (["CL.THROTTLE", "a", "15", "30", "60"], format!("{:0>99}", 1));
        let short = encoded(&words);
        assert!(ThrottleTemplate::new(&longest, &parsed(&short).unwrap().0).is_some());
        let long = encoded(&[&words[..], &[&*zeros]].concat());
        assert!(ThrottleTemplate::new(&long, &parsed(&long).unwrap().0).is_none());
    }

    #[test]
    fn only_arrays_of_strings_are_templates() {
        let plain = b"CL.THROTTLE a 15 30 60\r\n";
        assert!(ThrottleTemplate::new(plain, &parsed(plain).unwrap().0).is_none());
        let number = b"*5\r\n$11\r\nCL.THROTTLE\r\n:7\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n";
        assert!(ThrottleTemplate::new(number, &parsed(number).unwrap().0).is_none());
    }
}
