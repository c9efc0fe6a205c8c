//! Finds the gates that everybody who can reach them may use.

use std::fmt;
use std::net::SocketAddr;

use thiserror::Error;
use tollway::config::{GateAccess, Gates, TrustedNetworks};

use super::smockron::{ACCOUNTING, CONTROL};

/// A gate that others than this machine can reach, and that requires no authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenGate {
    /// The name of the gate.
    pub gate: &'static str,
    /// The address at which it listens.
    pub address: SocketAddr,
    /// The worst that somebody can do who reaches it.
    pub risk: &'static str,
    /// The setting that closes it.
    pub remedy: &'static str,
}

/// Writes the gate, its address, the risk and what to do.
impl fmt::Display for OpenGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gate, address, risk, remedy } = self;
        write!(f, "the {gate} gate at {address} is open: everybody who can reach it {risk}; {remedy}")
    }
}

/// The error that a gate is open although none may be. It is inside of the [`io::Error`](std::io::Error) of a server's
/// start.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", .0.iter().map(OpenGate::to_string).collect::<Vec<_>>().join("\n"))]
pub struct OpenGatesError(pub Vec<OpenGate>);

const TOKENS: &str = "set \"tokens\", or \"tls\" with \"client_ca\", or listen on loopback";
const CERTIFICATES: &str = "set \"tls\" with \"client_ca\", or listen on loopback";
const SIGNATURES: &str = "set \"hmac\" or \"trusted_networks\", or listen on loopback";
const NETWORKS: &str = "set \"trusted_networks\", or listen on loopback";

/// Returns the gates that listen on more than loopback, and ask for neither tokens nor certificates of clients. The
/// text gate has signatures or trusted networks instead, and the Smockron gate trusted networks. The networks that are
/// trusted by default do not count: nobody has said that these are the right ones. Nor does a list that has every
/// address.
pub fn open_gates(gates: &Gates) -> Vec<OpenGate> {
    let smockron = gates.smockron.as_ref();
    let asks_smockron = smockron.is_some_and(|gate| is_restricted(&gate.trusted_networks));
    let asks_text = gates.text_hmac.is_some() || is_restricted(&gates.trusted_networks);
    let others = [
        ("text", gates.text, asks_text),
        (ACCOUNTING, smockron.map(|gate| gate.accounting), asks_smockron),
        (CONTROL, smockron.and_then(|gate| gate.control()), asks_smockron),
    ];
    gates
        .accesses()
        .map(|(gate, address, access)| (gate, Some(address), access.requires_authentication()))
        .chain(others)
        .filter_map(|(gate, address, requires_authentication)| {
            let address =
                address.filter(|address| !requires_authentication && !address.ip().is_loopback())?;
            let (risk, remedy) = risk_and_remedy(gate);
            Some(OpenGate { gate, address, risk, remedy })
        })
        .collect()
}

/// Returns the worst that somebody can do who reaches a gate, and the setting that closes it.
fn risk_and_remedy(gate: &str) -> (&'static str, &'static str) {
    match gate {
        "http" => ("can use up and refund the limits of every id", TOKENS),
        "admin" => ("can see all ids and reset their buckets", TOKENS),
        "text" => ("can use up the limits of every key", SIGNATURES),
        "throttr" => ("can change the quotas of all consumers", CERTIFICATES),
        "resp" => ("can use up, refund and reset the limits of every id", TOKENS),
        "rls" => ("can use up the limits of every descriptor", TOKENS),
        ACCOUNTING => ("can report requests for every client, and so delay it", NETWORKS),
        CONTROL => ("can see which clients are delayed", NETWORKS),
        other => unreachable!("no gate is called {other}"),
    }
}

/// Returns whether somebody has chosen networks, and not all that there are.
fn is_restricted(networks: &TrustedNetworks) -> bool {
    *networks != TrustedNetworks::LOCAL && !networks.cover_all_addresses()
}

/// A gate whose tokens cross a network as plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlainTextGate {
    /// The name of the gate.
    pub gate: &'static str,
    /// The address at which it listens.
    pub address: SocketAddr,
}

/// Writes the gate, its address, the risk and what to do.
impl fmt::Display for PlainTextGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gate, address } = self;
        write!(
            f,
            "the tokens of the {gate} gate at {address} cross the network as plain text, and everybody who can read "
        )?;
        f.write_str("the traffic can use them; set \"tls\"")
    }
}

/// Returns the gates whose tokens cross a network as plain text: those with tokens and without TLS that listen on more
/// than loopback.
pub fn plain_text_gates(gates: &Gates) -> Vec<PlainTextGate> {
    let is_plain = |address: SocketAddr, access: &GateAccess| {
        access.tokens.is_some() && access.tls.is_none() && !address.ip().is_loopback()
    };
    let plain = gates.accesses().filter(|(_, address, access)| is_plain(*address, access));
    plain.map(|(gate, address, _)| PlainTextGate { gate, address }).collect()
}

#[cfg(test)]
mod tests {
    use tollway::config::{SmockronGate, TlsSettings};

    use super::*;

    fn names(gates: &Gates) -> Vec<&'static str> {
        open_gates(gates).iter().map(|open| open.gate).collect()
    }

    fn everywhere() -> Gates {
        let any = Some("0.0.0.0:7".parse().unwrap());
        let smockron = any.map(SmockronGate::at);
        Gates { http: any, admin: any, text: any, throttr: any, resp: any, smockron, rls: any, ..Gates::OFF }
    }

    #[test]
    fn a_gate_on_loopback_is_not_open_and_one_on_every_interface_is() {
        assert_eq!(names(&Gates::default()), [""; 0]);
        let all = ["http", "admin", "throttr", "resp", "rls", "text", ACCOUNTING, CONTROL];
        assert_eq!(names(&everywhere()), all);
        let open = open_gates(&Gates { http: Some("[::]:80".parse().unwrap()), ..Gates::OFF });
        assert_eq!(
            open[0].to_string(),
            "the http gate at [::]:80 is open: everybody who can reach it can use up and refund the limits of every id; \
             set \"tokens\", or \"tls\" with \"client_ca\", or listen on loopback"
        );
    }

    fn networks() -> TrustedNetworks {
        ["10.0.0.0/8".parse().unwrap()].into_iter().collect()
    }

    #[test]
    fn networks_that_have_every_address_close_no_gate() {
        for (networks, expected) in [
            (&["10.0.0.0/8"][..], &[][..]),
            (&["0.0.0.0/0", "::/0"], &["text", ACCOUNTING, CONTROL]),
            (&["0.0.0.0/1", "128.0.0.0/1"], &["text", ACCOUNTING, CONTROL]),
        ] {
            let list: TrustedNetworks = networks.iter().map(|text| text.parse().unwrap()).collect();
            let smockron = everywhere().smockron;
            let gates = Gates {
                text: everywhere().text,
                trusted_networks: list.clone(),
                smockron: smockron.map(|gate| SmockronGate { trusted_networks: list, ..gate }),
                ..Gates::OFF
            };
            assert_eq!(names(&gates), expected, "{networks:?}");
        }
    }

    #[test]
    fn tokens_and_certificates_of_clients_close_a_gate_and_a_certificate_of_its_own_does_not() {
        let tokens = GateAccess { tokens: Some("tokens.txt".into()), ..GateAccess::OPEN };
        let own = TlsSettings { cert: "a".into(), key: "b".into(), client_ca: None };
        let tls = GateAccess { tls: Some(own.clone()), ..GateAccess::OPEN };
        let clients =
            GateAccess { tls: Some(TlsSettings { client_ca: Some("c".into()), ..own }), ..GateAccess::OPEN };
        let gates = Gates {
            http_access: tokens.clone(),
            admin_access: tls,
            throttr_access: clients.clone(),
            resp_access: clients,
            rls_access: GateAccess { tls: None, ..tokens },
            trusted_networks: networks(),
            smockron: everywhere().smockron.map(|gate| SmockronGate { trusted_networks: networks(), ..gate }),
            ..everywhere()
        };
        assert_eq!(names(&gates), ["admin"]);
        let plain: Vec<_> = plain_text_gates(&gates).iter().map(|plain| plain.gate).collect();
        assert_eq!(plain, ["http", "rls"]);
    }
}
