//! Listens before there is a server: clients that connect wait, and are not refused.

use std::io;
use std::net::SocketAddr;

use socket2::{Protocol, Socket};
use tollway::config::Gates;

use super::smockron::{ACCOUNTING, CONTROL};
use super::{BindError, bind_one};

/// The ports of the gates over TCP, at which clients can connect before a server serves them. Another server may have
/// the same ports: the system shares new connections out between the two, until one of them closes its sockets.
#[derive(Debug, Default)]
pub struct ReservedPorts(Vec<(&'static str, Socket)>);

impl ReservedPorts {
    /// Listens at the addresses of all gates over TCP whose port is known. Connections wait in the queues of the
    /// system. The error names the address that could not be bound.
    ///
    /// Datagrams are not waited for: nobody would want the answer when it comes.
    pub fn bind(gates: &Gates) -> io::Result<Self> {
        let smockron = gates.smockron.as_ref();
        let addresses = [
            ("http", gates.http),
            ("admin", gates.admin),
            ("throttr", gates.throttr),
            ("resp", gates.resp),
            ("rls", gates.rls.filter(|_| cfg!(feature = "rls"))),
            (ACCOUNTING, smockron.map(|gate| gate.accounting)),
            (CONTROL, smockron.and_then(|gate| gate.control())),
        ];
        let known = |(gate, address): (_, Option<SocketAddr>)| Some((gate, address?));
        let known = addresses.into_iter().filter_map(known).filter(|(_, address)| address.port() != 0);
        let reserved = known.map(|(gate, address)| match bind_one(address, Protocol::TCP, true) {
            Ok(socket) => Ok((gate, socket)),
            Err(source) => Err(io::Error::new(source.kind(), BindError { gate, address, source })),
        });
        reserved.collect::<io::Result<_>>().map(Self)
    }

    /// Takes the socket of a gate, if there is one.
    pub(super) fn take(&mut self, gate: &str) -> Option<Socket> {
        let index = self.0.iter().position(|(name, _)| *name == gate)?;
        Some(self.0.swap_remove(index).1)
    }
}
