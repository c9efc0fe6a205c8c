//! A master that says what it is told to say, over loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use tollgate_client::gatekeeper::{Gatekeeper, GatekeeperBuilder};
use tollgate_client::wire::smockron::Control;
use tollgate_client::wire::zmtp::{self, Conversation, Said, SocketType};

/// Longer than any test takes: whoever waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

const AT_ONCE: Duration = Duration::from_millis(1);

pub(crate) struct Master {
    accounting: TcpListener,
    control: TcpListener,
    open: Option<[Peer; 2]>,
}

impl Master {
    pub(crate) fn bind() -> Self {
        let [accounting, control] = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        Self { accounting, control, open: None }
    }

    /// One that will be this master's.
    pub(crate) fn gatekeeper(&self, domain: &str) -> GatekeeperBuilder {
        let [accounting, control] = self.addresses();
        Gatekeeper::builder(&accounting, domain).control(&control)
    }

    /// Where it takes accounting, and where it publishes.
    pub(crate) fn addresses(&self) -> [String; 2] {
        [&self.accounting, &self.control].map(|listener| listener.local_addr().unwrap().to_string())
    }

    /// Does all that a master does when a gatekeeper comes.
    pub(crate) fn accept(&mut self) {
        self.accept_unsubscribed();
        self.subscribe(b"");
    }

    pub(crate) fn accept_unsubscribed(&mut self) {
        let mut accounting = Peer::accept(&self.accounting, SocketType::Sub);
        let mut control = Peer::accept(&self.control, SocketType::Pub);
        accounting.greet();
        control.greet();
        assert_eq!(control.next(), "+api\\x00");
        self.open = Some([accounting, control]);
    }

    /// Greets as something, says more, and hangs up when the gatekeeper does.
    pub(crate) fn accept_as(&mut self, accounting: SocketType, control: SocketType, more: &[u8]) {
        for (listener, kind) in [(&self.accounting, accounting), (&self.control, control)] {
            let mut bytes = Vec::new();
            zmtp::encode_opening(kind, &mut bytes);
            bytes.extend_from_slice(more);
            say(listener, &bytes, PATIENCE);
        }
    }

    /// Says something else than a greeting.
    pub(crate) fn accept_and_say(&mut self, bytes: &[u8]) {
        for listener in [&self.accounting, &self.control] {
            say(listener, bytes, if bytes.is_empty() { AT_ONCE } else { PATIENCE });
        }
    }

    pub(crate) fn hang_up(&mut self) {
        self.open = None;
    }

    /// The next message that came, frame by frame.
    pub(crate) fn message(&mut self) -> Vec<String> {
        let said = self.accounting().next();
        said.split('|').map(str::to_owned).collect()
    }

    pub(crate) fn delay_until(&mut self, identifier: &str, delay_until: u64) {
        let mut bytes = Vec::new();
        Control { domain: b"api", identifier: identifier.as_bytes(), delay_until }.encode(&mut bytes);
        self.control().stream.write_all(&bytes).unwrap();
    }

    pub(crate) fn publish(&mut self, frames: &[&[u8]]) {
        let mut bytes = Vec::new();
        zmtp::encode(frames, &mut bytes);
        self.control().stream.write_all(&bytes).unwrap();
    }

    pub(crate) fn subscribe(&mut self, topic: &[u8]) {
        let mut bytes = Vec::new();
        zmtp::encode_subscription(topic, &mut bytes);
        self.accounting().stream.write_all(&bytes).unwrap();
    }

    pub(crate) fn cancel(&mut self, topic: &[u8]) {
        let mut bytes = Vec::new();
        zmtp::encode(&[&[&[0], topic].concat()], &mut bytes);
        self.accounting().stream.write_all(&bytes).unwrap();
    }

    /// What comes back from both connections.
    pub(crate) fn ping(&mut self, context: &[u8]) -> [Vec<u8>; 2] {
        let body = [b"\x04PING\0\x64", context].concat();
        let command = [&[4, u8::try_from(body.len()).unwrap()], &body[..]].concat();
        self.open.as_mut().unwrap().each_mut().map(|peer| {
            peer.stream.write_all(&command).unwrap();
            let mut pong = vec![0; 7 + context.len()];
            peer.stream.read_exact(&mut pong).unwrap();
            pong.split_off(7)
        })
    }

    pub(crate) fn expect_the_end(&mut self) {
        for peer in self.open.as_mut().unwrap() {
            assert_eq!(peer.stream.read(&mut [0; 1]).unwrap_or(0), 0);
        }
    }

    fn accounting(&mut self) -> &mut Peer {
        &mut self.open.as_mut().unwrap()[0]
    }

    fn control(&mut self) -> &mut Peer {
        &mut self.open.as_mut().unwrap()[1]
    }
}

/// Says this, and hangs up when the gatekeeper has, or runs out of patience.
fn say(listener: &TcpListener, bytes: &[u8], patience: Duration) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(patience)).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.read_to_end(&mut Vec::new());
}

struct Peer {
    stream: TcpStream,
    ours: SocketType,
    conversation: Conversation,
    inbox: Vec<u8>,
}

impl Peer {
    fn accept(listener: &TcpListener, ours: SocketType) -> Self {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, ours, conversation: Conversation::new(ours), inbox: Vec::new() }
    }

    fn greet(&mut self) {
        let mut opening = Vec::new();
        zmtp::encode_opening(self.ours, &mut opening);
        self.stream.write_all(&opening).unwrap();
        assert_eq!([self.next(), self.next()], ["Greeting", "Ready"]);
    }

    /// What the gatekeeper says next, in words.
    fn next(&mut self) -> String {
        loop {
            if let Some((said, len)) = self.conversation.next(&self.inbox).unwrap() {
                let words = match said {
                    Said::Message(frames) => {
                        frames.map(|frame| frame.escape_ascii().to_string()).collect::<Vec<_>>().join("|")
                    }
                    Said::Subscribe(topic) => format!("+{}", topic.escape_ascii()),
                    other => format!("{other:?}"),
                };
                self.inbox.drain(..len);
                return words;
            }
            let mut bytes = [0; 4096];
            let len = self.stream.read(&mut bytes).unwrap();
            assert_ne!(len, 0, "the gatekeeper hung up");
            self.inbox.extend_from_slice(&bytes[..len]);
        }
    }
}
