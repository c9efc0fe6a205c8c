//! Parses a command that differs from the one before it in its key alone, without looking at its numbers again.

use super::KEY_MAX;
use super::throttle::ThrottleRequest;
use super::words::length;

/// The bytes of a line end.
const LINE_END: usize = 2;

/// A `CL.THROTTLE` or `THROTTLE` that was parsed, and the bytes around its key. A client nearly always sends the same
/// numbers again, with another key.
#[derive(Clone, Copy, Debug)]
pub struct ThrottleTemplate<'a> {
    /// The bytes up to the length of the key.
    before: &'a [u8],
    /// The bytes after the key.
    after: &'a [u8],
    request: ThrottleRequest<'a>,
}

impl<'a> ThrottleTemplate<'a> {
    /// Creates the template of a command that was parsed from these bytes, or `None` if they are plain text.
    pub fn new(command: &'a [u8], request: ThrottleRequest<'a>) -> Option<Self> {
        let (_, name) = marked_length(command, b'*', 0)?;
        let (_, name_end) = string(command, name)?;
        let key = name_end + LINE_END;
        let (start, end) = string(command, key)?;
        let is_key = command.get(start..end) == Some(request.key);
        is_key.then(|| Self { before: &command[..=key], after: &command[end..], request })
    }

    /// Parses the command at the start of `inbox`, and returns it with its length in bytes. Returns `None` if it
    /// differs in more than its key, has a long key, or has not arrived: then it is to be decoded.
    #[inline]
    pub fn parse(&self, inbox: &'a [u8]) -> Option<(ThrottleRequest<'a>, usize)> {
        if !inbox.starts_with(self.before) {
            return None;
        }
        let (len, start) = length(inbox, self.before.len()).ok()??;
        if len > KEY_MAX || !inbox.get(start + len..)?.starts_with(self.after) {
            return None;
        }
        let key = &inbox[start..start + len];
        Some((self.request.with_key(key), start + len + self.after.len()))
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
            let Some(template) = ThrottleTemplate::new(template, request) else { continue };
            for command in &commands {
                let twice = [command.as_slice(), command].concat();
                if let Some(found) = template.parse(&twice) {
                    assert_eq!(Some(found), parsed(&twice));
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
    fn only_arrays_of_strings_are_templates() {
        let plain = b"CL.THROTTLE a 15 30 60\r\n";
        assert!(ThrottleTemplate::new(plain, parsed(plain).unwrap().0).is_none());
        let number = b"*5\r\n$11\r\nCL.THROTTLE\r\n:7\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n";
        assert!(ThrottleTemplate::new(number, parsed(number).unwrap().0).is_none());
    }
}
