//! `tollway explain`: a rule part by part, and which parts are reached.

mod tree;

use std::str::FromStr;

use anyhow::anyhow;
use clap::Args;
use tollway::core::{KeyedRule, Nanos, Policy, RuleRef};
use tollway_client::ClientError;
use tollway_client::http::{HttpRuleRequest, Rfc3339, RuleExplanation, RulePart};

use super::Outcome;
use crate::output::print_line;

/// Show which parts of a rule are reached, and when each frees
///
/// Takes an expression, or the name of a rule of a running server, and values for its selectors. Asks the server and changes
/// nothing there. Or limits if any of its parts is reached, And if all of them are; what is reached frees when the entry that
/// fills it has grown old. Without a server it shows the parts of an expression, and what it cannot say.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway explain \"Or('10/s', And('user:100/h', 'apikey:60/h'))\" user=vova apikey=k1
  tollway explain upload user=vova apikey=k1
  tollway explain upload user=vova apikey=           # a selector without a value
  tollway explain \"user:100/h\" --key upload user=vova

Exit status: 0 the request would pass, 1 it would be limited, 2 no answer.")]
pub(crate) struct Explain {
    /// An expression, or the name of a rule
    #[arg(value_name = "RULE")]
    rule: String,
    /// A value for each selector of the rule, as in user=vova; nothing after the sign is no value
    #[arg(value_name = "SELECTOR=VALUE")]
    selectors: Vec<Selector>,
    /// The key that requests are counted under; the name of a rule, and nothing for an expression, if not given
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The server's HTTP gate
    #[arg(
        long,
        visible_alias = "server",
        value_name = "ADDR",
        default_value = "127.0.0.1:8080",
        env = "TOLLWAY_ADDR"
    )]
    addr: String,
    /// Print the server's answer as it came
    #[arg(long)]
    json: bool,
}

#[derive(Clone)]
struct Selector {
    name: String,
    value: String,
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(Self { name: name.to_owned(), value: value.to_owned() })
            }
            _ => Err("a selector and its value, such as user=vova".to_owned()),
        }
    }
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
        let response = match super::client(&self.addr).explain_raw(&asked) {
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
    Ok(anyhow!(error).context("what is reached is not known"))
}

fn in_words(explained: &RuleExplanation) -> String {
    let RuleExplanation { rule, tree, at } = explained;
    let whole = match tree.frees_after {
        Some(Nanos::ZERO) => "the request would pass".to_owned(),
        Some(Nanos::FOREVER) => "the request would be limited, and no waiting helps".to_owned(),
        Some(span) => format!("the request would be limited, and pass in {span}"),
        None => "not known".to_owned(),
    };
    format!("rule   {rule}\nnow    {whole}\nas of  {}\n\n{}", Rfc3339(*at), tree::draw(tree))
}

fn limits(tree: &RulePart) -> bool {
    tree.frees_after.is_none_or(|span| span > Nanos::ZERO)
}
