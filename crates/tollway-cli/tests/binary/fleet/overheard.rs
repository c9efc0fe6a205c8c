//! Listens to what the master tells its gatekeepers, as one more subscriber. Nobody is delayed but by what it says.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::task::{JoinHandle, spawn_blocking};
use tollway_testbed::{ReceivedEvent, ZmqSocket};
use tollway_wire::smockron::ControlMessage;
use tollway_wire::zmtp::SocketType;

/// One message that was heard.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) client: String,
    pub(crate) until: Instant,
}

#[derive(Default)]
pub(crate) struct Overheard {
    told: Arc<Mutex<Vec<Told>>>,
    listener: Option<JoinHandle<()>>,
}

impl Overheard {
    /// Listens there from now on, until the master is gone.
    pub(crate) fn listen(&mut self, control: &str) {
        let mut socket = ZmqSocket::connect(control.parse().unwrap(), SocketType::Sub);
        socket.subscribe(b"");
        let told = Arc::clone(&self.told);
        self.listener = Some(spawn_blocking(move || {
            while let ReceivedEvent::Message(frames) = socket.receive() {
                let control = ControlMessage::decode(frames.iter().map(Vec::as_slice)).unwrap();
                told.lock().unwrap().push(Told::new(&control));
            }
        }));
    }

    /// All that was said by a master that is gone has been heard.
    pub(crate) async fn end(&mut self) {
        self.listener.take().unwrap().await.unwrap();
    }

    pub(crate) fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap().clone()
    }
}

impl Told {
    fn new(control: &ControlMessage<'_>) -> Self {
        let until = UNIX_EPOCH + Duration::from_millis(control.delay_until);
        let ahead = until.duration_since(SystemTime::now()).unwrap_or_default();
        let identifier = str::from_utf8(control.identifier).unwrap();
        let client = identifier.strip_prefix("header:x-client=").unwrap().to_owned();
        Self { client, until: Instant::now() + ahead }
    }
}
