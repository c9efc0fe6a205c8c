//! `tollway inspect`: shows the state of one bucket.

use std::fmt::{self, Display};
use std::time::Duration;

use clap::Args;
use tollway::config::describe_algorithm;
use tollway::core::Nanos;
use tollway_client::http::{BucketReport, Rfc3339};

use super::Outcome;
use super::arguments::{AdminServer, Bucket};
use crate::output::print_line;

/// Show the state of one bucket, without changing it
///
/// Prints the limit of the id, the units left, when the next unit is available, when the bucket is full again, and the
/// state as the store keeps it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway inspect demo:alice
  tollway inspect RequestsPerIPAddress:192.0.2.1 --json
  tollway inspect inline/throttle:alice    (the key of CL.THROTTLE and THROTTLE)

Exit status: 0 success, 2 error.")]
pub(crate) struct Inspect {
    /// A limit and an id, separated by the first colon
    #[arg(value_name = "LIMIT:ID")]
    bucket: Bucket,
    #[command(flatten)]
    server: AdminServer,
    /// Print the server's answer as JSON
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let response = self.server.client()?.inspect_raw(&self.bucket.limit, &self.bucket.id)?;
        if self.json {
            print_line(&response.body)?;
        }
        let inspected = response.bucket_report()?;
        if !self.json {
            print_line(in_words(&inspected).to_string().as_bytes())?;
        }
        Ok(Outcome::Yes)
    }
}

/// Formats one fact a line.
fn in_words(inspected: &BucketReport) -> impl Display {
    fmt::from_fn(move |f| {
        writeln!(f, "bucket     {}", inspected.bucket)?;
        match (&inspected.algorithm, inspected.reset_after) {
            (Some(algorithm), _) => {
                writeln!(f, "limit      {}", describe_algorithm(algorithm))?;
                writeln!(f, "remaining  {}", inspected.remaining.unwrap_or_default())?;
                writeln!(f, "next unit  {}", when(inspected.retry_after))?;
            }
            (None, Some(_)) => writeln!(f, "limit      inline; the numbers come with each request")?,
            (None, None) => return write!(f, "limit      none; this id is unlimited"),
        }
        // A bucket without state is full, although a fixed window has an end that is still to come.
        let full_after = inspected.state.map_or(Some(Duration::ZERO), |_| inspected.reset_after);
        writeln!(f, "full       {}", when(full_after))?;
        match &inspected.state {
            Some(state) => writeln!(f, "state      {state}")?,
            None => writeln!(f, "state      none; the bucket is unused or expired")?,
        }
        write!(f, "as of      {}", Rfc3339(inspected.at))
    })
}

fn when(span: Option<Duration>) -> String {
    match span {
        Some(Duration::ZERO) => "now".to_owned(),
        Some(span) => format!("in {}", Nanos::from(span)),
        None => "never".to_owned(),
    }
}
