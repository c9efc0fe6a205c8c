//! Reads the arguments of a benchmark: the paths of programs, and the flags that make a run shorter.

use std::{env, io};

/// The fewest turns whose results are written into the page.
const TURNS_MIN: usize = 5;

/// The arguments that one benchmark got.
#[derive(Clone, Debug)]
pub struct Options {
    /// The paths of the programs that take part, in the order in which they were asked for.
    pub programs: Vec<String>,
    /// The number of turns that each contestant gets, after one to warm up.
    pub turns: usize,
    /// The length of a turn, for contestants that run for a time.
    pub seconds: f64,
    /// The name of the only row to measure.
    pub only: Option<String>,
    /// True if the flag that only this benchmark has was given.
    pub extra: bool,
}

/// The arguments that a benchmark takes, with the defaults.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec<'a> {
    /// The names of the programs whose paths come first.
    pub programs: &'a [&'a str],
    /// The number of turns without `--turns N`.
    pub turns: usize,
    /// The length of a turn without `--seconds S`.
    pub seconds: f64,
    /// The rows that `--only ROW` can name.
    pub rows: &'a [&'a str],
    /// A flag without a value that only this benchmark has.
    pub extra: Option<&'a str>,
}

impl OptionSpec<'_> {
    /// The arguments of a benchmark that has no programs and no rows.
    pub const NONE: Self = Self { programs: &[], turns: 9, seconds: 1.0, rows: &[], extra: None };

    /// Reads the arguments of the process.
    pub fn read(&self) -> io::Result<Options> {
        // Cargo adds `--bench`.
        self.parse(env::args().skip(1).filter(|argument| argument != "--bench"))
    }

    fn parse(&self, mut arguments: impl Iterator<Item = String>) -> io::Result<Options> {
        let usage = || io::Error::other(self.usage());
        let programs = self.programs.iter().map(|_| arguments.next().ok_or_else(usage));
        let programs = programs.collect::<io::Result<_>>()?;
        let Self { turns, seconds, .. } = *self;
        let mut options = Options { programs, turns, seconds, only: None, extra: false };
        while let Some(flag) = arguments.next() {
            if Some(flag.as_str()) == self.extra {
                options.extra = true;
                continue;
            }
            let value = arguments.next().ok_or_else(usage)?;
            match flag.as_str() {
                "--turns" => options.turns = value.parse().map_err(|_| usage())?,
                "--seconds" => options.seconds = value.parse().map_err(|_| usage())?,
                "--only" if self.rows.contains(&value.as_str()) => options.only = Some(value),
                _ => return Err(usage()),
            }
        }
        if options.turns == 0 { Err(usage()) } else { Ok(options) }
    }

    fn usage(&self) -> String {
        let programs = self.programs.iter().map(|program| format!("the path of {program}, "));
        let rows = match self.rows {
            [] => String::new(),
            rows => format!(", --only ROW ({})", rows.join(", ")),
        };
        let extra = self.extra.map_or_else(String::new, |extra| format!(", {extra}"));
        let programs: String = programs.collect();
        format!("arguments: {programs}--turns N (1 or more), --seconds S{rows}{extra}")
    }
}

impl Options {
    /// Returns true if this row is to be measured.
    pub fn wants(&self, row: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == row)
    }

    /// Returns true if the results go into the page: all rows were measured, and often enough.
    pub fn is_complete(&self) -> bool {
        self.turns >= TURNS_MIN && self.only.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: OptionSpec<'_> =
        OptionSpec { programs: &["tollway"], rows: &["zipf"], extra: Some("--fill-50m"), ..OptionSpec::NONE };

    fn parse(words: &str) -> io::Result<Options> {
        SPEC.parse(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_short_run_is_not_written_into_the_page() {
        let all = parse("target/tollway").unwrap();
        assert!(all.is_complete() && all.wants("zipf") && all.programs == ["target/tollway"]);
        let short = parse("target/tollway --turns 3 --seconds 0.5 --fill-50m").unwrap();
        assert!(!short.is_complete() && short.extra && short.turns == 3);
        let one = parse("target/tollway --only zipf").unwrap();
        assert!(!one.is_complete() && one.wants("zipf") && !one.wants("memory"));
    }

    #[test]
    fn a_mistake_shows_what_can_be_said() {
        for words in
            ["", "tollway --turns", "tollway --turns 0", "tollway --only uniform", "tollway --fast 1"]
        {
            let error = parse(words).unwrap_err().to_string();
            assert!(error.contains("path of tollway") && error.contains("zipf"), "{words}: {error}");
        }
    }
}
