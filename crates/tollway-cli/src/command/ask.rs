//! `tollway spend`, `check`, `refund` and `reset`: ask a running server.

use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::{Args, value_parser};
use tollway::TokenBucket;
use tollway::trace::{LimitRequest, TraceReply};
use tollway_client::ClientError;
use tollway_client::core::Verb;
use tollway_client::http::blocking::Client;
use tollway_client::http::{ChargeRequest, RawResponse, RuleRequest};

use super::Outcome;
use super::arguments::{AdminServer, Bucket, RuleWord, cost, span};
use super::tls_flags::TlsFlags;
use super::token_flags::TokenFlags;
use crate::output::print_line;

/// Take units from one or more buckets: from all of them, or from none
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway spend demo:alice
  tollway spend LoginsPerAccount:alice RequestsPerIPAddress:192.0.2.1
  tollway spend demo:alice --cost 3 --json
  tollway spend demo:alice --rule upload user=alice apikey=k1
  tollway spend alice --burst 16 --count 30 --period 1m

Exit status: 0 allowed, 1 denied, 2 error.")]
pub(crate) struct Spend {
    #[command(flatten)]
    bill: Bill,
    #[command(flatten)]
    question: Question,
    /// The units that each charge takes
    #[arg(long, value_name = "N", default_value_t = Verb::Spend.default_cost(), value_parser = cost)]
    cost: u64,
    #[command(flatten)]
    server: HttpServer,
}

/// Test if a spend would be allowed, without taking anything
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway check demo:alice
  tollway check demo:alice --cost 0
  tollway check demo:alice --rule upload user=alice apikey=k1
  tollway check alice --burst 16 --count 30 --period 1m

Exit status: 0 it would be allowed, 1 it would be denied, 2 error.")]
pub(crate) struct Check {
    #[command(flatten)]
    bill: Bill,
    #[command(flatten)]
    question: Question,
    /// The units that each charge would take; 0 shows what is left
    #[arg(long, value_name = "N", default_value_t = Verb::Check.default_cost(), value_parser = cost)]
    cost: u64,
    #[command(flatten)]
    server: HttpServer,
}

/// Give units back to one or more buckets
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway refund demo:alice --cost 3

Exit status: 0 given back, 1 the bucket was already full, 2 error.")]
pub(crate) struct Refund {
    #[command(flatten)]
    buckets: Buckets,
    #[command(flatten)]
    question: Question,
    /// The units that each charge gives back
    #[arg(long, value_name = "N", default_value_t = Verb::Refund.default_cost(), value_parser = cost)]
    cost: u64,
    #[command(flatten)]
    server: HttpServer,
}

/// Reset one or more buckets to their initial state
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway reset LoginsPerAccount:alice

Exit status: 0 reset, 2 error.")]
pub(crate) struct Reset {
    #[command(flatten)]
    buckets: Buckets,
    #[command(flatten)]
    question: Question,
    #[command(flatten)]
    server: AdminServer,
}

impl Spend {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        self.question.ask(
            &self.server.client()?,
            Verb::Spend,
            &self.bill.buckets,
            &self.bill.rules,
            self.cost,
        )
    }
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        self.question.ask(
            &self.server.client()?,
            Verb::Check,
            &self.bill.buckets,
            &self.bill.rules,
            self.cost,
        )
    }
}

impl Refund {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        self.question.ask(&self.server.client()?, Verb::Refund, &self.buckets.buckets, &[], self.cost)
    }
}

impl Reset {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        self.question.ask(&self.server.client()?, Verb::Reset, &self.buckets.buckets, &[], 0)
    }
}

/// The charges and rules of a command that decides.
#[derive(Args)]
struct Bill {
    /// A limit and an id, separated by the first colon; with --count, an id alone. Several are charged together: all of
    /// them, or none
    #[arg(value_name = "LIMIT:ID", required_unless_present = "rules")]
    buckets: Vec<String>,
    /// A rule of the server, and a value for each of its selectors. It is asked together with the charges: they are
    /// taken and the request is counted, or nothing is done. Can be repeated
    #[arg(long = "rule", id = "rules", value_names = ["NAME", "SELECTOR=VALUE"], num_args = 1..)]
    rules: Vec<RuleWord>,
}

/// The charges of a command that gives back or forgets.
#[derive(Args)]
struct Buckets {
    /// A limit and an id, separated by the first colon; with --count, an id alone
    #[arg(value_name = "LIMIT:ID", required = true)]
    buckets: Vec<String>,
}

/// The arguments that every command which asks a server takes.
#[derive(Args)]
struct Question {
    #[command(flatten)]
    inline: Option<InlineNumbers>,
    /// Print the server's answer as JSON
    #[arg(long)]
    json: bool,
}

/// The numbers of an inline limit, which are sent in place of the name of a limit.
#[derive(Args)]
#[group(requires_all = ["count", "period"])]
struct InlineNumbers {
    /// The units that come back in a period. With --count and --period the limit comes with the request, and an id
    /// stands alone, without the name of a limit
    #[arg(long, value_name = "N", required = false, value_parser = value_parser!(u64).range(1..))]
    count: u64,
    /// The period in which they come back, such as 1m30s, or whole seconds
    #[arg(long, value_name = "TIME", required = false, value_parser = span)]
    period: Duration,
    /// The units that can be taken at once [default: the count]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    burst: Option<u64>,
}

/// The server that a command for everybody asks.
#[derive(Args)]
struct HttpServer {
    /// The address of the server's HTTP gate
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", env = "TOLLWAY_ADDR")]
    addr: String,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    token: TokenFlags,
}

impl HttpServer {
    /// Creates the client of the server.
    fn client(&self) -> anyhow::Result<Client> {
        super::client(&self.addr, &self.tls, &self.token)
    }
}

impl Question {
    fn ask(
        &self,
        client: &Client,
        verb: Verb,
        buckets: &[String],
        rules: &[RuleWord],
        cost: u64,
    ) -> anyhow::Result<Outcome> {
        let request =
            LimitRequest { verb, charges: self.charges(buckets, cost)?, rules: rule_requests(rules)? };
        let response = client.bill_raw(verb, &request.charges, &request.rules)?;
        let answer = decode(&response, &request);
        if self.json {
            print_line(&response.body)?;
        }
        let (yes, words) = answer?;
        if !self.json {
            print_line(words.to_string().as_bytes())?;
        }
        Ok(if yes { Outcome::Yes } else { Outcome::No })
    }

    fn charges(&self, buckets: &[String], cost: u64) -> anyhow::Result<Vec<ChargeRequest<'static>>> {
        if let Some(InlineNumbers { count, period, burst }) = self.inline {
            let numbers = TokenBucket::new(burst.unwrap_or(count), count, period)?;
            return Ok(buckets
                .iter()
                .map(|id| ChargeRequest::inline(numbers, id, cost).into_owned())
                .collect());
        }
        let by_name = buckets.iter().map(|text| {
            let Bucket { limit, id } =
                text.parse().map_err(|problem| anyhow!("invalid value '{text}' for LIMIT:ID: {problem}"))?;
            Ok(ChargeRequest::new(&limit, &id, cost).into_owned())
        });
        by_name.collect()
    }
}

/// Returns the rules that the words of all `--rule` flags name. The words of a flag are a name and its selectors.
fn rule_requests(words: &[RuleWord]) -> anyhow::Result<Vec<RuleRequest<'static>>> {
    let mut requests = Vec::<RuleRequest<'static>>::new();
    for word in words {
        match (word, requests.last_mut()) {
            (RuleWord::Name(name), _) => requests.push(RuleRequest::new(name)),
            (RuleWord::Selector(selector), Some(request)) => {
                let (name, value) = (selector.name.clone(), selector.value.clone().into_bytes());
                request.selectors.push((name.into(), value.into()));
            }
            (RuleWord::Selector(selector), None) => {
                bail!("--rule needs the name of a rule before \"{}={}\"", selector.name, selector.value);
            }
        }
    }
    Ok(requests)
}

/// Returns whether the answer is a yes, and the answer in the words of a trace.
fn decode(response: &RawResponse, request: &LimitRequest) -> Result<(bool, TraceReply), ClientError> {
    Ok(match request.verb {
        Verb::Spend | Verb::Check => {
            let decision = response.bill_decision(&request.charges, &request.rules)?;
            (decision.allowed(), TraceReply::decision(request, decision))
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
