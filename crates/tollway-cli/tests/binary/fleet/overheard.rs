//! Listens to what the master tells its gatekeepers, as one more subscriber. Nobody is delayed but by what it says.

use std::sync::{Arc, Mutex};

use tokio::task::spawn_blocking;
use tollway_testbed::{ReceivedEvent, ZmqSocket};
use tollway_wire::smockron::ControlMessage;
use tollway_wire::zmtp::SocketType;

/// The clients that the master delayed, one entry for each message.
#[derive(Default)]
pub(crate) struct Overheard {
    clients: Arc<Mutex<Vec<String>>>,
}

impl Overheard {
    /// Listens there from now on, until the master is gone.
    pub(crate) fn listen(&self, control: &str) {
        let mut socket = ZmqSocket::connect(control.parse().unwrap(), SocketType::Sub);
        socket.subscribe(b"");
        let clients = Arc::clone(&self.clients);
        spawn_blocking(move || {
            while let ReceivedEvent::Message(frames) = socket.receive() {
                let control = ControlMessage::decode(frames.iter().map(Vec::as_slice)).unwrap();
                let identifier = str::from_utf8(control.identifier).unwrap();
                let client = identifier.strip_prefix("header:x-client=").unwrap();
                clients.lock().unwrap().push(client.to_owned());
            }
        });
    }

    pub(crate) fn clients(&self) -> Vec<String> {
        self.clients.lock().unwrap().clone()
    }
}
