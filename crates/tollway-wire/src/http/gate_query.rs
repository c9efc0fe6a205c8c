//! The question of a proxy that asks `/v1/gate` before it lets a request through.
//!
//! ```text
//! /v1/gate?limit=Login&id=10.0.0.1                                           one charge
//! /v1/gate?limit=PerClient&id_from=client_ip&limit=PerKey&id_from=header:X-Api-Key&cost=2     one bill
//! /v1/gate?rule=upload&user_from=header:X-User&apikey=k1                     a rule, with its selectors
//! /v1/gate?limit=PerClient&id_from=client_ip&path=/a/b?c=d                   as Envoy sends it
//! ```
//!
//! A parameter belongs to the `limit` or the `rule` before it. `path` is the last parameter: all that follows it is the
//! target of the original request, so that a client cannot add a parameter by its own query.

mod proxied_request;

use std::borrow::Cow;

use tollway_core::bill::{CHARGES_MAX, RULES_MAX};
use tollway_core::rule::RATES_MAX;
use tollway_core::{ChargeKind, IdFormat, RuleRef, RuleRequest, Verb};

pub use self::proxied_request::{IdSource, ProxiedRequest};
use super::command::{ChargeRequest, MalformedRequest, missing_field};
use super::query_string::{malformed_parameter, parse_u64, percent_decode, text};
use super::status::HttpStatus;

/// The question of a proxy: charges and rules that are one bill, and the status of a denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateQuery<'a> {
    /// The charges to take, in the order of the query.
    pub charges: Vec<GateCharge<'a>>,
    /// The rules to ask, in the order of the query.
    pub rules: Vec<GateRule<'a>>,
    /// The path and the query of the original request, if the proxy appended them.
    pub original_target: Option<&'a str>,
    /// The status that tells the proxy to deny the request. `None` sends 429, or 503 if the store is unreachable.
    pub deny_status: Option<DenyStatus>,
}

/// A charge whose id may come from the request that the proxy asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateCharge<'a> {
    /// The name of the limit.
    pub limit: Cow<'a, str>,
    /// The place that the id is taken from.
    pub id: IdSource<'a>,
    /// The units that it would take.
    pub cost: u64,
}

/// A rule whose selectors may come from the request that the proxy asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateRule<'a> {
    /// The name of the rule.
    pub rule: Cow<'a, str>,
    /// The key to count under. `None` uses the key of the rule.
    pub key: Option<IdSource<'a>>,
    /// The names of selectors, and the places that their values are taken from. Each name occurs once.
    pub selectors: Vec<(&'a str, IdSource<'a>)>,
}

impl<'a> GateCharge<'a> {
    /// Finds the id in `request`. The ids of the limit have the format `ids`.
    pub fn into_request(
        self,
        request: &ProxiedRequest<'a>,
        ids: IdFormat,
    ) -> Result<ChargeRequest<'a>, MalformedRequest> {
        let id = request.id(self.id, ids)?;
        Ok(ChargeRequest { limit: self.limit, id, cost: self.cost, kind: ChargeKind::Spend, inline: None })
    }
}

impl<'a> GateRule<'a> {
    /// Finds the values of the selectors in `request`.
    pub fn into_request(self, request: &ProxiedRequest<'a>) -> Result<RuleRequest<'a>, MalformedRequest> {
        let value = |source| request.id(source, IdFormat::Any);
        let key = self.key.map(|source| text("key", value(source)?)).transpose()?;
        let selectors = self.selectors.into_iter().map(|(name, source)| Ok((name.into(), value(source)?)));
        let rule = RuleRef::Named(self.rule.into_owned());
        Ok(RuleRequest { rule, key, selectors: selectors.collect::<Result<_, _>>()? })
    }
}

/// A status that tells a proxy to deny a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenyStatus {
    /// Sends 401, which nginx's `auth_request` passes on.
    Unauthorized,
    /// Sends 403, which nginx's `auth_request` passes on.
    Forbidden,
    /// Sends 429, which is the proper status.
    TooManyRequests,
    /// Sends 503, after which some proxies try another server.
    ServiceUnavailable,
}

impl DenyStatus {
    /// Returns the HTTP status to send.
    pub const fn status(self) -> HttpStatus {
        match self {
            Self::Unauthorized => HttpStatus::Unauthorized,
            Self::Forbidden => HttpStatus::Forbidden,
            Self::TooManyRequests => HttpStatus::TooManyRequests,
            Self::ServiceUnavailable => HttpStatus::ServiceUnavailable,
        }
    }

    fn parse(code: &str) -> Result<Self, MalformedRequest> {
        Ok(match code {
            "401" => Self::Unauthorized,
            "403" => Self::Forbidden,
            "429" => Self::TooManyRequests,
            "503" => Self::ServiceUnavailable,
            _ => return Err(malformed_parameter("deny_status", "send 401, 403, 429 or 503")),
        })
    }
}

impl<'a> GateQuery<'a> {
    /// Parses a query string.
    pub fn from_query(query: &'a str) -> Result<Self, MalformedRequest> {
        let mut reader = GateReader::default();
        let mut rest = query;
        while !rest.is_empty() {
            if let Some(target) = rest.strip_prefix("path=") {
                reader.original_target = Some(target);
                break;
            }
            let (pair, after) = rest.split_once('&').unwrap_or((rest, ""));
            rest = after;
            if !pair.is_empty() {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                reader.read(name, value)?;
            }
        }
        reader.into_query()
    }
}

/// The parts of a query that were read so far.
#[derive(Default)]
struct GateReader<'a> {
    charges: Vec<ChargeParameters<'a>>,
    rules: Vec<GateRule<'a>>,
    /// The part of the query that the next parameter belongs to.
    current: Current,
    original_target: Option<&'a str>,
    deny_status: Option<DenyStatus>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Current {
    /// Before the first `limit` or `rule`. An `id` here belongs to the limit that follows.
    #[default]
    Start,
    Charge,
    Rule,
}

/// The parameters of one charge.
#[derive(Default)]
struct ChargeParameters<'a> {
    limit: Option<Cow<'a, str>>,
    id: Option<IdSource<'a>>,
    cost: Option<u64>,
}

impl<'a> GateReader<'a> {
    fn read(&mut self, name: &'a str, value: &'a str) -> Result<(), MalformedRequest> {
        match name {
            "limit" => self.start_charge(value),
            "rule" => self.start_rule(value),
            "deny_status" => set_once(name, &mut self.deny_status, DenyStatus::parse(value)?),
            _ if self.current == Current::Rule => self.read_selector(name, value),
            "id" => set_once("id", &mut self.charge()?.id, IdSource::Given(percent_decode(name, value)?)),
            "id_from" => set_once("id", &mut self.charge()?.id, IdSource::parse(name, value)?),
            "cost" => {
                let accepted = "send a whole number from 0 to 18446744073709551615";
                let cost = parse_u64(&percent_decode(name, value)?);
                let cost = cost.ok_or_else(|| malformed_parameter(name, accepted))?;
                set_once(name, &mut self.charge()?.cost, cost)
            }
            _ => Err(unknown(name)),
        }
    }

    fn start_charge(&mut self, value: &'a str) -> Result<(), MalformedRequest> {
        let limit = text("limit", percent_decode("limit", value)?)?;
        let continued = self.current == Current::Start && !self.charges.is_empty();
        self.current = Current::Charge;
        if !continued {
            self.charges.push(ChargeParameters::default());
        }
        if self.charges.len() > CHARGES_MAX {
            return Err(malformed_parameter("limit", &format!("a bill has at most {CHARGES_MAX} charges")));
        }
        if let Some(charge) = self.charges.last_mut() {
            charge.limit = Some(limit);
        }
        Ok(())
    }

    fn start_rule(&mut self, value: &'a str) -> Result<(), MalformedRequest> {
        if self.rules.len() == RULES_MAX {
            return Err(malformed_parameter("rule", &format!("a bill has at most {RULES_MAX} rules")));
        }
        let rule = text("rule", percent_decode("rule", value)?)?;
        self.current = Current::Rule;
        self.rules.push(GateRule { rule, key: None, selectors: Vec::new() });
        Ok(())
    }

    /// Returns the charge that a parameter belongs to.
    fn charge(&mut self) -> Result<&mut ChargeParameters<'a>, MalformedRequest> {
        if self.charges.is_empty() {
            self.charges.push(ChargeParameters::default());
        }
        self.charges.last_mut().ok_or_else(|| missing_field("limit", "send the name of a limit"))
    }

    fn read_selector(&mut self, name: &'a str, value: &'a str) -> Result<(), MalformedRequest> {
        let Some(rule) = self.rules.last_mut() else { return Err(unknown(name)) };
        let (selector, source) = match name.strip_suffix("_from") {
            Some(selector) => (selector, IdSource::parse(name, value)?),
            None => (name, IdSource::Given(percent_decode(name, value)?)),
        };
        if selector == "cost" {
            // It would be read as a selector that the rule does not have, and the charge would cost 1.
            let accepted = "a rule has no cost; send \"cost\" after its \"limit\" and before \"rule\"";
            return Err(malformed_parameter(name, accepted));
        }
        if selector == "key" {
            return set_once("key", &mut rule.key, source);
        }
        if rule.selectors.iter().any(|(known, _)| *known == selector) {
            return Err(malformed_parameter(selector, "given twice; give it once"));
        }
        if rule.selectors.len() == RATES_MAX {
            return Err(malformed_parameter(selector, &format!("send at most {RATES_MAX} selectors")));
        }
        rule.selectors.push((selector, source));
        Ok(())
    }

    fn into_query(self) -> Result<GateQuery<'a>, MalformedRequest> {
        let charges = self.charges.into_iter().map(ChargeParameters::into_charge);
        let charges = charges.collect::<Result<Vec<_>, _>>()?;
        if charges.is_empty() && self.rules.is_empty() {
            return Err(missing_field(
                "limit",
                "send the name of a limit, or \"rule\" and the name of a rule",
            ));
        }
        let Self { rules, original_target, deny_status, .. } = self;
        Ok(GateQuery { charges, rules, original_target, deny_status })
    }
}

impl<'a> ChargeParameters<'a> {
    fn into_charge(self) -> Result<GateCharge<'a>, MalformedRequest> {
        let limit = self.limit.ok_or_else(|| missing_field("limit", "send the name of a limit"))?;
        let what = "send who or what is limited after its \"limit\", or \"id_from\" and where to find it";
        let id = self.id.ok_or_else(|| missing_field("id", what))?;
        Ok(GateCharge { limit, id, cost: self.cost.unwrap_or(Verb::Spend.default_cost()) })
    }
}

fn set_once<T>(name: &str, place: &mut Option<T>, value: T) -> Result<(), MalformedRequest> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(malformed_parameter(name, "given twice; give it once")),
    }
}

fn unknown(name: &str) -> MalformedRequest {
    let name: String = name.chars().take(64).collect();
    let detail = format!(
        "unknown parameter \"{name}\"; send \"limit\" with \"id\" or \"id_from\" and \"cost\", or \"rule\" with its \
         selectors, then \"deny_status\" and \"path\""
    );
    MalformedRequest { field: None, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charges(query: &str) -> Vec<String> {
        let gate = GateQuery::from_query(query).unwrap();
        let show = |charge: &GateCharge<'_>| format!("{} {} {}", charge.limit, charge.id, charge.cost);
        gate.charges.iter().map(show).collect()
    }

    #[test]
    fn queries_are_understood() {
        for (query, expected, status) in [
            ("limit=L&id=a", &["L a 1"][..], None),
            ("id=10.0.0.1&limit=L&cost=0&deny_status=403", &["L 10.0.0.1 0"], Some(403)),
            ("limit=L&&id=%41%2b+%ff", &["L A++\\xff 1"], None),
            ("limit=%4c&id=", &["L  1"], None),
            ("limit=A&id=a&limit=B&cost=2&id_from=client_ip", &["A a 1", "B (client_ip) 2"], None),
            ("cost=3&id_from=path&limit=A&limit=B&id=b", &["A (path) 3", "B b 1"], None),
            ("limit=A&id_from=header:X-Api-Key", &["A (header X-Api-Key) 1"], None),
            ("limit=A&id_from=host&limit=A&id_from=method", &["A (host) 1", "A (method) 1"], None),
            ("deny_status=401&limit=L&id=a&path=/p?limit=M&id=b&cost=0", &["L a 1"], Some(401)),
        ] {
            assert_eq!(charges(query), expected, "{query}");
            let gate = GateQuery::from_query(query).unwrap();
            assert_eq!(gate.deny_status.map(|deny| deny.status().code()), status, "{query}");
        }
    }

    #[test]
    fn a_client_cannot_add_parameters_behind_the_path() {
        let query = "limit=L&id=a&path=/p/a?x=1&limit=M&cost=0&deny_status=401&path=/b";
        let gate = GateQuery::from_query(query).unwrap();
        assert_eq!(gate.original_target, Some("/p/a?x=1&limit=M&cost=0&deny_status=401&path=/b"));
        assert_eq!((gate.charges.len(), gate.charges[0].cost), (1, 1));
    }

    #[test]
    fn a_rule_takes_selectors() {
        let gate = GateQuery::from_query(
            "rule=upload&user=vova&apikey_from=header:X-Key&key=cats&id=7&limit=L&id=a&rule=other&ip_from=client_ip",
        );
        let gate = gate.unwrap();
        let [upload, other] = &gate.rules[..] else { panic!() };
        let shown: Vec<_> =
            upload.selectors.iter().map(|(name, source)| format!("{name}={source}")).collect();
        assert_eq!(shown, ["user=vova", "apikey=(header X-Key)", "id=7"]);
        assert_eq!(upload.key, Some(IdSource::Given(b"cats".into())));
        assert_eq!((&*upload.rule, &*other.rule, &*gate.charges[0].limit), ("upload", "other", "L"));
        assert_eq!(other.selectors, [("ip", IdSource::ClientIp)]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (query, field) in [
            ("", Some("limit")),
            ("limit=L", Some("id")),
            ("id=a", Some("limit")),
            ("path=/limit=L&id=a", Some("limit")),
            ("limit=L&id=a&id=a", Some("id")),
            ("limit=L&id=a&id_from=path", Some("id")),
            ("limit=A&limit=B&id=a&id=b", Some("id")),
            ("limit=A&limit=B&id=a", Some("id")),
            ("limit=%ff&id=a", Some("limit")),
            ("limit=L&id=%4", Some("id")),
            ("limit=L&id=%zz", Some("id")),
            ("limit=L&id=a&cost=-1", Some("cost")),
            ("limit=L&id=a&cost=", Some("cost")),
            ("limit=L&id=a&cost=+1", Some("cost")),
            ("limit=L&id=a&cost=1&cost=1", Some("cost")),
            ("limit=L&id=a&cost=18446744073709551616", Some("cost")),
            ("limit=L&id=a&deny_status=200", Some("deny_status")),
            ("limit=L&id=a&deny_status=403&deny_status=403", Some("deny_status")),
            ("limit=L&id_from=ip", Some("id_from")),
            ("limit=L&id_from=", Some("id_from")),
            ("limit=L&id_from=header", Some("id_from")),
            ("limit=L&id_from=header:", Some("id_from")),
            ("limit=L&id_from=header:a%20b", Some("id_from")),
            ("limit=L&id_from=header:a:b", Some("id_from")),
            ("limit=L&id=a&deny=403", None),
            ("rule=%ff", Some("rule")),
            ("rule=r&user=a&user=b", Some("user")),
            ("rule=r&user=a&user_from=path", Some("user")),
            ("rule=r&user_from=x", Some("user_from")),
            ("rule=r&key=a&key=b", Some("key")),
            ("id=a&rule=r", Some("limit")),
            ("limit=L&id=a&rule=r&user=a&cost=3", Some("cost")),
            ("rule=r&cost=0&user=a", Some("cost")),
            ("rule=r&cost_from=path", Some("cost_from")),
        ] {
            assert_eq!(GateQuery::from_query(query).unwrap_err().field.as_deref(), field, "{query}");
        }
        for (part, field, bound) in
            [("limit=L&id=a&", "limit", "at most 32"), ("rule=r&", "rule", "at most 8")]
        {
            let error = GateQuery::from_query(&part.repeat(10_000)).unwrap_err();
            assert_eq!(error.field.as_deref(), Some(field), "{}", error.detail);
            assert!(error.detail.contains(bound), "{}", error.detail);
        }
    }
}
