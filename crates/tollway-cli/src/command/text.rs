//! `tollway text`: ask a text gate in its own words.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use tollway::core::Nanos;
use tollway_client::ClientError;
use tollway_client::text::blocking::Client;
use tollway_client::text::{SigningKey, SigningKeys};
use tollway_wire::text::{ReceivedReply, decode, decode_reply, split_id};

use super::Outcome;
use crate::output::print_line;

/// Send a command over the UDP text protocol
///
/// The command gets an id in front, so that a late reply to another command is ignored; the reply is printed without
/// it. If the command already has an id, the reply is printed with it. A server does not reply to an unknown command.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway text over_limit ws global
  tollway text '7 over_limit ws ip=192.0.2.1' --addr 10.0.0.5:2000 --timeout 1s
  tollway text 'check_limit {\"origin\":\"ws\",\"ua\":\"Mozilla\",\"ip\":\"192.0.2.1\"}'
  tollway text get_stats ws global
  tollway text get_size
  tollway text ping
  tollway text ping --key-file web.key

Exit status: 0 not over the limit, 1 over the limit (Y), 2 error.")]
pub(crate) struct Text {
    /// A command and its key or JSON; several arguments are joined by spaces
    #[arg(value_name = "COMMAND", required = true)]
    question: Vec<String>,
    /// The address of the server's text gate
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:2000", env = "TOLLWAY_TEXT_ADDR")]
    addr: String,
    /// The timeout for a reply
    #[arg(long, value_name = "TIME", default_value = "100ms", env = "TOLLWAY_TEXT_TIMEOUT")]
    timeout: Nanos,
    /// A file with the key that signs the command: a line with its name and its secret in hexadecimal digits
    #[arg(long, value_name = "FILE", env = "TOLLWAY_TEXT_KEY_FILE")]
    key_file: Option<PathBuf>,
}

impl Text {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let question = self.question.join(" ");
        let (id, body) = split_id(question.as_bytes());
        let mut client = Client::with_timeout(&self.addr, self.timeout.into())?;
        if let Some(path) = &self.key_file {
            client = client.with_key(read_key(path)?);
        }
        let answer = match client.ask(body) {
            Err(error @ ClientError::TimedOut { .. }) if decode(body).is_none() => {
                return Err(error)
                    .context("the command is not part of the text protocol; see \"tollway text --help\"");
            }
            Err(error @ ClientError::TimedOut { .. }) => {
                let signatures = self.key_file.as_ref().map_or_else(
                    || "if the gate asks for signatures, give --key-file with its key".to_owned(),
                    |path| {
                        format!("if the gate does not have the key in {}, it answers nothing", path.display())
                    },
                );
                bail!("{error}; {signatures}");
            }
            answer => answer?,
        };
        let Some((None, said)) = decode_reply(&answer) else {
            bail!("{:?} is not a reply of the text protocol", String::from_utf8_lossy(&answer));
        };
        let line = id.map_or_else(|| answer.clone(), |id| [id, b" ", &answer].concat());
        print_line(&line)?;
        Ok(if is_over(&said) { Outcome::No } else { Outcome::Yes })
    }
}

/// Reads the only key of a file.
fn read_key(path: &Path) -> anyhow::Result<SigningKey> {
    let shown = path.display();
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(SigningKeys::FILE_MAX as u64).read_to_string(&mut text));
    read.with_context(|| format!("the key cannot be read from {shown}"))?;
    let keys = SigningKeys::parse(&text).with_context(|| format!("{shown} is wrong"))?;
    let mut keys = keys.iter();
    match (keys.next(), keys.next()) {
        (Some(key), None) => Ok(key.clone()),
        _ => bail!("{shown} has several keys; keep the line of the one that signs in a file of its own"),
    }
}

const fn is_over(said: &ReceivedReply<'_>) -> bool {
    match said {
        ReceivedReply::OverLimit(last) | ReceivedReply::CheckLimit { last, .. } => last.over,
        ReceivedReply::Stats { .. } | ReceivedReply::Size { .. } | ReceivedReply::Pong => false,
    }
}
