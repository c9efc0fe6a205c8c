//! The query of `GET /v1/gate?limit=Login&id=10.0.0.1`, which a proxy sends before it lets a request through.

use tollway_core::{ChargeKind, Verb};

use super::command::{ChargeRequest, ChargeRequests, HttpCommand, MalformedRequest, missing_field};
use super::query_string::{limit_name, malformed_parameter, parse_parameters, parse_u64};
use super::status::HttpStatus;

/// A spend that a proxy asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateQuery<'a> {
    /// The command to run. It has one charge.
    pub command: HttpCommand<'a>,
    /// The status that tells the proxy to deny the request.
    pub deny_status: DenyStatus,
}

/// A status that tells a proxy to deny a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DenyStatus {
    /// Sends 401, which nginx's `auth_request` passes on.
    Unauthorized,
    /// Sends 403, which nginx's `auth_request` passes on.
    Forbidden,
    /// Sends 429, which is the proper status.
    #[default]
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

    fn from_code(code: &[u8]) -> Option<Self> {
        Some(match code {
            b"401" => Self::Unauthorized,
            b"403" => Self::Forbidden,
            b"429" => Self::TooManyRequests,
            b"503" => Self::ServiceUnavailable,
            _ => return None,
        })
    }
}

impl<'a> GateQuery<'a> {
    /// Parses a query string.
    pub fn from_query(query: &'a str) -> Result<Self, MalformedRequest> {
        let [limit, id, cost, deny_status] = parse_parameters(query, ["limit", "id", "cost", "deny_status"])?;
        let limit = limit.ok_or_else(|| missing_field("limit", "send the name of a limit"))?;
        let charge = ChargeRequest {
            limit: limit_name(limit)?,
            id: id.ok_or_else(|| missing_field("id", "send who or what is limited"))?,
            cost: cost.map_or(Ok(Verb::Spend.default_cost()), |cost| {
                let accepted = "send a whole number from 0 to 18446744073709551615";
                parse_u64(&cost).ok_or_else(|| malformed_parameter("cost", accepted))
            })?,
            kind: ChargeKind::Spend,
        };
        let deny_status = deny_status.map_or(Ok(DenyStatus::default()), |code| {
            let accepted = "send 401, 403, 429 or 503";
            DenyStatus::from_code(&code).ok_or_else(|| malformed_parameter("deny_status", accepted))
        })?;
        Ok(Self { command: HttpCommand::new(Verb::Spend, ChargeRequests::One(charge)), deny_status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_understood() {
        for (query, limit, id, cost, status) in [
            ("limit=L&id=a", "L", &b"a"[..], 1, 429),
            ("id=10.0.0.1&limit=L&cost=0&deny_status=403", "L", b"10.0.0.1", 0, 403),
            ("limit=L&&id=%41%2b+%ff", "L", b"A++\xff", 1, 429),
            ("limit=%4c&id=", "L", b"", 1, 429),
        ] {
            let gate = GateQuery::from_query(query).unwrap();
            let charge = &gate.command.charges()[0];
            assert_eq!((&*charge.limit, &*charge.id, charge.cost), (limit, id, cost), "{query}");
            assert_eq!(gate.deny_status.status().code(), status, "{query}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (query, field) in [
            ("", Some("limit")),
            ("limit=L", Some("id")),
            ("limit=L&id=a&id=a", Some("id")),
            ("limit=%ff&id=a", Some("limit")),
            ("limit=L&id=%4", Some("id")),
            ("limit=L&id=%zz", Some("id")),
            ("limit=L&id=a&cost=-1", Some("cost")),
            ("limit=L&id=a&cost=", Some("cost")),
            ("limit=L&id=a&cost=+1", Some("cost")),
            ("limit=L&id=a&cost=18446744073709551616", Some("cost")),
            ("limit=L&id=a&deny_status=200", Some("deny_status")),
            ("limit=L&id=a&deny=403", None),
        ] {
            assert_eq!(GateQuery::from_query(query).unwrap_err().field.as_deref(), field, "{query}");
        }
    }
}
