//! Reads the syntax of nginx's configuration: words, `;`, blocks in braces, quotes and comments.
//!
//! ```nginx
//! server { limit_req zone=one burst=5; }
//! ```
//!
//! Any text is read or refused, without I/O.

use std::iter::Peekable;
use std::str::Chars;

use super::imported::{ImportError, Position};

/// The most blocks that one directive can be in.
const DEPTH_MAX: usize = 64;

/// A directive with its words, the first of which is its name.
#[derive(Debug)]
pub(crate) struct Directive {
    pub(crate) words: Vec<Word>,
    /// The block that it is in, by its place in the list.
    pub(crate) parent: Option<usize>,
}

/// A word, which has lost its quotes.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) at: Position,
}

impl Directive {
    pub(crate) fn name(&self) -> &str {
        &self.words[0].text
    }

    pub(crate) fn at(&self) -> Position {
        self.words[0].at
    }

    /// Returns the words after the name.
    pub(crate) fn arguments(&self) -> &[Word] {
        &self.words[1..]
    }
}

/// Returns all directives in their order, each with at least one word, or the first mistake.
pub(crate) fn parse(text: &str) -> Result<Vec<Directive>, ImportError> {
    let mut characters = Characters { rest: text.chars().peekable(), at: Position { line: 1, column: 1 } };
    let mut directives = Vec::<Directive>::new();
    // The open blocks, and where their braces are.
    let mut open = Vec::<(usize, Position)>::new();
    let mut words = Vec::new();
    while let Some((character, at)) = characters.skip_blank() {
        match character {
            ';' | '{' if words.is_empty() => {
                return Err(ImportError::new(at, format!("\"{character}\" without a directive before it")));
            }
            ';' | '{' => {
                characters.next();
                let parent = open.last().map(|(block, _)| *block);
                let directive = Directive { words: std::mem::take(&mut words), parent };
                let is_lua = directive.name().ends_with("_by_lua_block");
                directives.push(directive);
                match character {
                    '{' if is_lua => characters.skip_lua(at)?,
                    '{' if open.len() == DEPTH_MAX => {
                        let message = format!("blocks are nested more than {DEPTH_MAX} deep");
                        return Err(ImportError::new(at, message));
                    }
                    '{' => open.push((directives.len() - 1, at)),
                    _ => {}
                }
            }
            '}' => {
                characters.next();
                check_ended(&words)?;
                if open.pop().is_none() {
                    return Err(ImportError::new(at, "\"}\" without a \"{\" before it"));
                }
            }
            _ => words.push(characters.word(at)?),
        }
    }
    check_ended(&words)?;
    match open.last() {
        Some((_, at)) => Err(ImportError::new(*at, "this block has no end: a \"}\" is missing")),
        None => Ok(directives),
    }
}

/// Refuses words that no `;` follows.
fn check_ended(words: &[Word]) -> Result<(), ImportError> {
    words.first().map_or(Ok(()), |word| {
        Err(ImportError::new(word.at, format!("directive {:?} does not end with \";\"", word.text)))
    })
}

/// The characters that are left, with the place of the next.
struct Characters<'a> {
    rest: Peekable<Chars<'a>>,
    at: Position,
}

impl Characters<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.next()?;
        if next == '\n' {
            self.at = Position { line: self.at.line + 1, column: 1 };
        } else {
            self.at.column += 1;
        }
        Some(next)
    }

    /// Skips white space and comments. Returns the character after them, which it leaves, and its place.
    fn skip_blank(&mut self) -> Option<(char, Position)> {
        loop {
            match *self.rest.peek()? {
                '#' => self.skip_line(),
                blank if blank.is_ascii_whitespace() => {
                    self.next();
                }
                character => return Some((character, self.at)),
            }
        }
    }

    fn skip_line(&mut self) {
        while self.next().is_some_and(|character| character != '\n') {}
    }

    /// Takes a word, which begins at `at`. A quote counts only at its beginning, and a brace only after `$`.
    fn word(&mut self, at: Position) -> Result<Word, ImportError> {
        let quote = self.rest.next_if(|first| matches!(first, '"' | '\''));
        if quote.is_some() {
            self.at.column += 1;
        }
        let mut text = String::new();
        loop {
            let Some(&character) = self.rest.peek() else {
                return match quote {
                    Some(_) => Err(ImportError::new(at, "this quote has no end")),
                    None => Ok(Word { text, at }),
                };
            };
            match (character, quote) {
                (_, Some(quote)) if character == quote => {
                    self.next();
                    return Ok(Word { text, at });
                }
                (';' | '}', None) => return Ok(Word { text, at }),
                ('{', None) if !text.ends_with('$') => return Ok(Word { text, at }),
                ('{', None) => self.take_while(&mut text, |character| character != '}'),
                (_, None) if character.is_ascii_whitespace() => return Ok(Word { text, at }),
                ('\\', _) => {
                    self.next();
                    match self.next() {
                        Some('t') => text.push('\t'),
                        Some('r') => text.push('\r'),
                        Some('n') => text.push('\n'),
                        Some(escaped @ ('\\' | '"' | '\'' | ' ' | ';')) => text.push(escaped),
                        // Regular expressions keep their backslashes.
                        other => text.extend(std::iter::once('\\').chain(other)),
                    }
                }
                _ => {
                    self.next();
                    text.push(character);
                }
            }
        }
    }

    /// Takes characters while they fit, and the one after them.
    fn take_while(&mut self, text: &mut String, fits: impl Fn(char) -> bool) {
        while let Some(character) = self.next() {
            text.push(character);
            if !fits(character) {
                return;
            }
        }
    }

    /// Skips a long string of Lua, such as `[[…]]` or `[==[…]==]`, whose first bracket was taken. It may have lines and
    /// quotes. Returns false if it is none.
    fn skip_long_string(&mut self) -> bool {
        let level = self.skip_equal_signs();
        if !self.skip_if('[') {
            return false;
        }
        while let Some(character) = self.next() {
            // The bracket that ends one attempt may begin the next: `]=]]`.
            let mut is_closing = character == ']';
            while is_closing {
                is_closing = false;
                let found = self.skip_equal_signs();
                if self.skip_if(']') {
                    if found == level {
                        return true;
                    }
                    is_closing = true;
                }
            }
        }
        true
    }

    /// Skips `=` as long as it is the next character, and returns how often it was.
    fn skip_equal_signs(&mut self) -> usize {
        let mut skipped = 0;
        while self.skip_if('=') {
            skipped += 1;
        }
        skipped
    }

    /// Skips a character if it is the next one.
    fn skip_if(&mut self, expected: char) -> bool {
        let is_next = self.rest.peek() == Some(&expected);
        if is_next {
            self.next();
        }
        is_next
    }

    /// Skips the code of a block of Lua, whose brace at `at` was taken. Braces in its strings and comments do not
    /// count.
    fn skip_lua(&mut self, at: Position) -> Result<(), ImportError> {
        let mut depth = 1_usize;
        while let Some(character) = self.next() {
            match character {
                '{' => depth += 1,
                '}' if depth == 1 => return Ok(()),
                '}' => depth -= 1,
                '-' if self.rest.peek() == Some(&'-') => {
                    self.next();
                    if !(self.skip_if('[') && self.skip_long_string()) {
                        self.skip_line();
                    }
                }
                '[' => _ = self.skip_long_string(),
                '"' | '\'' => {
                    while let Some(next) = self.next().filter(|next| *next != character) {
                        if next == '\\' {
                            self.next();
                        }
                    }
                }
                _ => {}
            }
        }
        Err(ImportError::new(at, "this block has no end: a \"}\" is missing"))
    }
}
