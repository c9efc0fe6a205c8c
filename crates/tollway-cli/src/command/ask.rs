//! `tollway spend`, `check`, `refund` and `reset`: ask a running server.

use clap::Args;
use tollway::trace::TraceReply;
use tollway_client::ClientError;
use tollway_client::core::Verb;
use tollway_client::http::{ChargeRequest, RawResponse};

use super::Outcome;
use super::arguments::{Bucket, cost};
use crate::output::print_line;

/// Take units from one or more buckets: from all of them, or from none
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway spend demo:alice
  tollway spend LoginsPerAccount:alice RequestsPerIPAddress:192.0.2.1
  tollway spend demo:alice --cost 3 --json

Exit status: 0 allowed, 1 denied, 2 error.")]
pub(crate) struct Spend {
    #[command(flatten)]
    question: Question,
    /// The units that each charge takes
    #[arg(long, value_name = "N", default_value_t = Verb::Spend.default_cost(), value_parser = cost)]
    cost: u64,
}

/// Test if a spend would be allowed, without taking anything
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway check demo:alice
  tollway check demo:alice --cost 0

Exit status: 0 it would be allowed, 1 it would be denied, 2 error.")]
pub(crate) struct Check {
    #[command(flatten)]
    question: Question,
    /// The units that each charge would take; 0 shows what is left
    #[arg(long, value_name = "N", default_value_t = Verb::Check.default_cost(), value_parser = cost)]
    cost: u64,
}

/// Give units back to one or more buckets
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway refund demo:alice --cost 3

Exit status: 0 given back, 1 the bucket was already full, 2 error.")]
pub(crate) struct Refund {
    #[command(flatten)]
    question: Question,
    /// The units that each charge gives back
    #[arg(long, value_name = "N", default_value_t = Verb::Refund.default_cost(), value_parser = cost)]
    cost: u64,
}

/// Reset one or more buckets to their initial state
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway reset LoginsPerAccount:alice

Exit status: 0 reset, 2 error.")]
pub(crate) struct Reset {
    #[command(flatten)]
    question: Question,
}

impl Spend {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        self.question.ask(Verb::Spend, self.cost)
    }
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        self.question.ask(Verb::Check, self.cost)
    }
}

impl Refund {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        self.question.ask(Verb::Refund, self.cost)
    }
}

impl Reset {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        self.question.ask(Verb::Reset, 0)
    }
}

/// The arguments that every command which asks a server takes.
#[derive(Args)]
struct Question {
    /// A limit and an id, separated by the first colon. Several are charged together: all of them, or none
    #[arg(value_name = "LIMIT:ID", required = true)]
    buckets: Vec<Bucket>,
    /// The address of the server's HTTP gate
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", env = "TOLLWAY_ADDR")]
    addr: String,
    /// Print the server's answer as JSON
    #[arg(long)]
    json: bool,
}

impl Question {
    fn ask(&self, verb: Verb, cost: u64) -> anyhow::Result<Outcome> {
        let charges: Vec<_> =
            self.buckets.iter().map(|bucket| ChargeRequest::new(&bucket.limit, &bucket.id, cost)).collect();
        let response = super::client(&self.addr)?.charge_raw(verb, &charges)?;
        let answer = decode(verb, &response, &charges);
        if self.json {
            print_line(&response.body)?;
        }
        let (yes, words) = answer?;
        if !self.json {
            print_line(words.to_string().as_bytes())?;
        }
        Ok(if yes { Outcome::Yes } else { Outcome::No })
    }
}

/// Returns whether the answer is a yes, and the answer in the words of a trace.
fn decode(
    verb: Verb,
    response: &RawResponse,
    charges: &[ChargeRequest<'_>],
) -> Result<(bool, TraceReply), ClientError> {
    Ok(match verb {
        Verb::Spend | Verb::Check => {
            let decision = response.decision(charges)?;
            let limit = (charges.len() > 1).then(|| charges[decision.charge].limit.to_string());
            (decision.allowed(), TraceReply::Decision { decision, limit })
        }
        Verb::Refund => match response.refund()? {
            tollway::core::Refund::UNLIMITED => (false, TraceReply::UnlimitedRefund),
            refund => (refund.refunded, TraceReply::Refund(refund)),
        },
        Verb::Reset => {
            response.reset()?;
            (true, TraceReply::Reset)
        }
    })
}
