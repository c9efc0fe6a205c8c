//! A Smockron master for tests, which sends exactly what the test says.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use tollway_wire::smockron::ControlMessage;
use tollway_wire::zmtp::{self, SocketType};

use crate::TEST_TIMEOUT;
use crate::zmq_socket::{ReceivedEvent, ZmqSocket};

const IMMEDIATELY: Duration = Duration::from_millis(1);

/// A master that serves one gatekeeper and one domain. It decides nothing: the test chooses the delays.
///
/// ```no_run
/// use tollway_testbed::ScriptedMaster;
///
/// let mut master = ScriptedMaster::bind("api");
/// let [accounting, control] = master.addresses();
/// // …where a gatekeeper connects.
/// master.accept();
/// assert_eq!(master.message()[1..3], ["ACCEPTED", "10.0.0.1"]);
/// master.delay_until("10.0.0.1", 1_700_000_000_000);
/// ```
#[derive(Debug)]
pub struct ScriptedMaster {
    domain: String,
    accounting: TcpListener,
    control: TcpListener,
    open: Option<[ZmqSocket; 2]>,
}

impl ScriptedMaster {
    /// Binds a master to free ports.
    pub fn bind(domain: &str) -> Self {
        let [accounting, control] =
            [0; 2].map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a free port"));
        Self { domain: domain.to_owned(), accounting, control, open: None }
    }

    /// Returns the address of the accounting socket, and that of the control socket.
    pub fn addresses(&self) -> [String; 2] {
        let address = |listener: &TcpListener| listener.local_addr().expect("it is bound").to_string();
        [&self.accounting, &self.control].map(address)
    }

    /// Accepts a gatekeeper as a real master does, and subscribes to all its accounting.
    pub fn accept(&mut self) {
        self.accept_unsubscribed();
        self.subscribe(b"");
    }

    /// Accepts a gatekeeper and waits for its subscription, but does not subscribe to its accounting.
    pub fn accept_unsubscribed(&mut self) {
        let accounting = ZmqSocket::accept(&self.accounting, SocketType::Sub);
        let mut control = ZmqSocket::accept(&self.control, SocketType::Pub);
        assert_eq!(control.receive(), ReceivedEvent::Subscription(format!("{}\0", self.domain).into()));
        self.open = Some([accounting, control]);
    }

    /// Accepts with these socket types, sends more bytes, and closes when the gatekeeper does.
    pub fn accept_as(&mut self, accounting: SocketType, control: SocketType, more: &[u8]) {
        for (listener, kind) in [(&self.accounting, accounting), (&self.control, control)] {
            let mut bytes = Vec::new();
            zmtp::encode_handshake(kind, &mut bytes);
            bytes.extend_from_slice(more);
            send_and_wait(listener, &bytes, TEST_TIMEOUT);
        }
    }

    /// Sends other bytes instead of a handshake. Without any bytes, it closes the connection immediately.
    pub fn accept_and_send(&mut self, bytes: &[u8]) {
        for listener in [&self.accounting, &self.control] {
            send_and_wait(listener, bytes, if bytes.is_empty() { IMMEDIATELY } else { TEST_TIMEOUT });
        }
    }

    /// Closes the connections; the gatekeeper may connect again.
    pub fn hang_up(&mut self) {
        self.open = None;
    }

    /// Returns the frames of the next accounting message, with bytes outside ASCII escaped.
    pub fn message(&mut self) -> Vec<String> {
        match self.accounting().receive() {
            ReceivedEvent::Message(frames) => {
                frames.iter().map(|frame| frame.escape_ascii().to_string()).collect()
            }
            other => panic!("accounting is due, not {other:?}"),
        }
    }

    /// Publishes a delay; `delay_until` is in milliseconds since 1970.
    pub fn delay_until(&mut self, identifier: &str, delay_until: u64) {
        let (domain, identifier) = (self.domain.as_bytes(), identifier.as_bytes());
        let mut bytes = Vec::new();
        ControlMessage { domain, identifier, delay_until }.encode(&mut bytes);
        self.control().write(&bytes);
    }

    /// Publishes any message, which need not be a valid delay.
    pub fn publish(&mut self, frames: &[&[u8]]) {
        self.control().send(frames);
    }

    /// Subscribes to accounting that starts with `topic`.
    pub fn subscribe(&mut self, topic: &[u8]) {
        self.accounting().subscribe(topic);
    }

    /// Cancels the subscription to `topic`.
    pub fn cancel(&mut self, topic: &[u8]) {
        self.accounting().send(&[&[&[0], topic].concat()]);
    }

    /// Sends a PING over both connections, and waits for the answers.
    pub fn ping(&mut self) {
        for socket in self.sockets() {
            socket.ping();
            assert_eq!(socket.receive(), ReceivedEvent::Pong);
        }
    }

    /// Waits until the gatekeeper closes both connections, and panics if it sends anything more.
    pub fn expect_disconnect(&mut self) {
        for socket in self.sockets() {
            assert_eq!(socket.receive(), ReceivedEvent::End);
        }
    }

    fn accounting(&mut self) -> &mut ZmqSocket {
        &mut self.sockets()[0]
    }

    fn control(&mut self) -> &mut ZmqSocket {
        &mut self.sockets()[1]
    }

    fn sockets(&mut self) -> &mut [ZmqSocket; 2] {
        self.open.as_mut().expect("a gatekeeper that was accepted")
    }
}

/// Sends these bytes, and closes when the gatekeeper does or after the timeout.
fn send_and_wait(listener: &TcpListener, bytes: &[u8], wait: Duration) {
    let (mut stream, _) = listener.accept().expect("a gatekeeper that connects");
    stream.set_read_timeout(Some(wait)).expect("a timeout above zero");
    let _ = stream.write_all(bytes);
    let _ = stream.read_to_end(&mut Vec::new());
}
