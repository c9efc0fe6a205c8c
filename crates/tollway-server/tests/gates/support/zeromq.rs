//! Gatekeepers, as ends of ZeroMQ that say what they are told to.

use tollway_testbed::{ReceivedEvent, ZmqSocket, eventually};
use tollway_wire::zmtp::SocketType;

use super::Harness;

impl Harness {
    /// A gatekeeper's way to say something, which the master wants to hear: all of it.
    pub(crate) fn publisher(&self) -> ZmqSocket {
        let mut publisher = ZmqSocket::connect(self.server.smockron_addr().unwrap(), SocketType::Pub);
        assert_eq!(publisher.receive(), ReceivedEvent::Subscription(Vec::new()));
        publisher
    }

    /// A gatekeeper's way to hear something: all of these topics, as soon as this returns.
    pub(crate) fn subscriber(&self, topics: &[&[u8]]) -> ZmqSocket {
        let mut subscriber =
            ZmqSocket::connect(self.server.smockron_control_addr().unwrap(), SocketType::Sub);
        topics.iter().for_each(|topic| subscriber.subscribe(topic));
        subscriber.ping();
        assert_eq!(subscriber.receive(), ReceivedEvent::Pong);
        subscriber
    }

    /// Waits until so many accounting messages were dealt with, good and bad, since the start.
    pub(crate) fn accounted(&self, messages: u64) {
        let names = ["tollway_smockron_requests_total{", "tollway_smockron_malformed_total{"];
        eventually("all accounting", || {
            let page = self.get("/metrics").body;
            let count: u64 = names.iter().map(|name| total(&page, name)).sum();
            assert!(count <= messages, "{count} of {messages}");
            count == messages
        });
    }
}

/// The sum of all samples whose lines begin so.
pub(crate) fn total(page: &str, name: &str) -> u64 {
    let values = page.lines().filter(|line| line.starts_with(name));
    values.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}
