//! Logs: to standard error, as text or JSON, filtered by `RUST_LOG`.

use std::env;
use std::io::{self, IsTerminal};

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{Directive, LevelFilter};

/// The variable with the filter.
const FILTER: &str = "RUST_LOG";

/// The flags of commands that log.
#[derive(Args, Clone, Copy)]
pub(crate) struct LogFlags {
    /// The format of the log, which goes to standard error
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text, env = "TOLLWAY_LOG_FORMAT")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    /// One line for people
    Text,
    /// One JSON object a line: timestamp, level, message, the fields of the event, target
    Json,
}

impl LogFlags {
    /// Starts to log. Fails if `RUST_LOG` is malformed.
    pub(crate) fn start(self) -> anyhow::Result<()> {
        let builder = tracing_subscriber::fmt().with_env_filter(filter()?).with_writer(io::stderr);
        match self.log_format {
            LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).init(),
            LogFormat::Json => {
                builder.json().flatten_event(true).with_current_span(false).with_span_list(false).init()
            }
        }
        Ok(())
    }
}

/// Returns the filter of the environment, or `info`.
fn filter() -> anyhow::Result<EnvFilter> {
    let Some(text) = env::var_os(FILTER).filter(|text| !text.is_empty()) else {
        return Ok(EnvFilter::new("info"));
    };
    let text = text.into_string().map_err(|_| anyhow!("{FILTER} must be UTF-8"))?;
    // The parser takes a misspelt level for the name of a module, and a missing one for `error`, and then
    // hardly anything is logged. Filters by span, in brackets, are left to it.
    let is_level = |text: &str| !text.is_empty() && text.parse::<LevelFilter>().is_ok();
    let is_valid = |part: &str| {
        let named = part.rsplit_once('=').map_or(part.starts_with("tollway"), |(_, level)| is_level(level));
        part.parse::<Directive>().is_ok() && (is_level(part) || named)
    };
    let mut parts = text.split(',').map(str::trim).filter(|_| !text.contains('['));
    if let Some(part) = parts.find(|part| !is_valid(part)) {
        bail!(
            "{FILTER} is not a log filter: \"{part}\"; it must be a level (error, warn, info, debug, trace or off), a \
             module and a level (tollway_server=debug), or several of them separated by commas"
        );
    }
    EnvFilter::try_new(&text).with_context(|| format!("{FILTER} is not a log filter: \"{text}\""))
}
