//! `tollway explain`: a rule part by part, and which parts are reached.

mod tree;

use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use tollway::core::{KeyedRule, Nanos, Policy, RuleRef};
use tollway_client::ClientError;
use tollway_client::http::{HttpRuleRequest, Rfc3339, RuleExplanation, RulePart};

use super::Outcome;
use super::arguments::{AdminServer, Selector};
use crate::output::print_line;

/// Show which parts of a rule have reached their limit, and when each is free again
///
/// Takes the name of a rule of a running server, or an expression, and a value for each selector. Reads from the server
/// and changes nothing. "Or" limits a request if any of its parts is reached, "And" if all of them are. A part is free
/// again when its oldest entries expire. Without a server, only the parts of an expression are shown.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway explain \"Or('10/s', And('user:100/h', 'apikey:60/h'))\" user=vova apikey=k1
  tollway explain upload user=vova apikey=k1
  tollway explain upload user=vova apikey=           # the request has no API key
  tollway explain \"user:100/h\" --key upload user=vova

Exit status: 0 the request would be allowed, 1 it would be denied, 2 error.")]
pub(crate) struct Explain {
    /// The name of a rule, or an expression
    #[arg(value_name = "RULE")]
    rule: String,
    /// A value for each selector of the rule, such as user=vova; leave it empty if the request has none
    #[arg(value_name = "SELECTOR=VALUE")]
    selectors: Vec<Selector>,
    /// The key under which requests are counted [default: the name of the rule, or empty for an expression]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    server: AdminServer,
    /// Print the server's answer as JSON
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        // What is no rule is said here, where there is room for carets.
        let written = match RuleRef::from(&*self.rule) {
            RuleRef::Written(text) => {
                text.parse::<tollway::core::Rule>()?;
                Some(Policy::default().find_rule(&RuleRef::Written(text), self.key.as_deref())?.into_owned())
            }
            RuleRef::Named(_) => None,
        };
        let selectors = self.selectors.iter();
        let asked = HttpRuleRequest {
            rule: self.rule.as_str().into(),
            key: self.key.as_deref().map(Into::into),
            selectors: selectors.map(|s| (s.name.as_str().into(), Some(s.value.as_str().into()))).collect(),
        };
        let response = match self.server.client()?.explain_raw(&asked) {
            Ok(response) => response,
            Err(error) => return Err(unanswered(error, written.as_ref(), &asked)?),
        };
        if self.json {
            print_line(&response.body)?;
        }
        let explained = response.explanation()?;
        if !self.json {
            print_line(in_words(&explained).as_bytes())?;
        }
        Ok(if limits(&explained.tree) { Outcome::No } else { Outcome::Yes })
    }
}

/// Shows what can be shown without a server, and says what cannot.
fn unanswered(
    error: ClientError,
    written: Option<&KeyedRule>,
    asked: &HttpRuleRequest<'_>,
) -> anyhow::Result<anyhow::Error> {
    let Some(rule) = written else { return Ok(error.into()) };
    let tree = RulePart::from_bill(&asked.bill(rule)?, |_| None);
    print_line(format!("rule   {}\n\n{}", rule.limit().rule(), tree::draw(&tree)).as_bytes())?;
    Ok(anyhow!(error).context("cannot tell which parts are reached"))
}

fn in_words(explained: &RuleExplanation) -> String {
    let RuleExplanation { rule, tree, at, .. } = explained;
    let whole = match tree.frees_after {
        Some(Duration::ZERO) => "the request would be allowed".to_owned(),
        Some(Duration::MAX) => "the request would be denied, and waiting does not help".to_owned(),
        Some(span) => format!("the request would be denied, and allowed in {}", Nanos::from(span)),
        None => "unknown".to_owned(),
    };
    format!("rule   {rule}\nnow    {whole}\nas of  {}\n\n{}", Rfc3339(*at), tree::draw(tree))
}

fn limits(tree: &RulePart) -> bool {
    tree.frees_after.is_none_or(|span| span > Duration::ZERO)
}
