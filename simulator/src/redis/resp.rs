//! The bytes of commands and replies, as a Redis reads and writes them.

/// A reply that a node sends.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Status(&'static str),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
    Nothing,
}

impl Reply {
    /// Returns the bytes of the reply.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append(&mut bytes);
        bytes
    }

    fn append(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Status(text) => bytes.extend(format!("+{text}\r\n").bytes()),
            Self::Error(text) => bytes.extend(format!("-{text}\r\n").bytes()),
            Self::Integer(number) => bytes.extend(format!(":{number}\r\n").bytes()),
            Self::Bulk(text) => {
                bytes.extend(format!("${}\r\n", text.len()).bytes());
                bytes.extend(text);
                bytes.extend(b"\r\n");
            }
            Self::Array(replies) => {
                bytes.extend(format!("*{}\r\n", replies.len()).bytes());
                replies.iter().for_each(|reply| reply.append(bytes));
            }
            Self::Nothing => bytes.extend(b"$-1\r\n"),
        }
    }
}

/// Returns the words of a command.
pub(super) fn words(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let count = line(&mut bytes);
    let word = |_| {
        let length = line(&mut bytes);
        let (word, rest) = bytes.split_at(length);
        bytes = &rest[2..];
        word.to_vec()
    };
    (0..count).map(word).collect()
}

/// Takes a line off the front: a sign and a number.
fn line(bytes: &mut &[u8]) -> usize {
    let end = bytes.iter().position(|byte| *byte == b'\r').expect("a complete command");
    let number = std::str::from_utf8(&bytes[1..end]).expect("digits").parse().expect("a number");
    *bytes = &bytes[end + 2..];
    number
}
