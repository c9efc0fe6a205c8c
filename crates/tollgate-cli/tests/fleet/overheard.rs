//! What the master tells its gatekeepers, heard by one more subscriber. Nobody is delayed but by what it says.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tollgate_wire::smockron::Control;
use tollgate_wire::zmtp::{self, Conversation, Said, SocketType};

/// One message.
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
    pub(crate) async fn at(control: &str) -> Self {
        let mut overheard = Self::default();
        overheard.listen(control).await;
        overheard
    }

    /// Listens there, until the master is gone.
    pub(crate) async fn listen(&mut self, control: &str) {
        let mut opening = Vec::new();
        zmtp::encode_opening(SocketType::Sub, &mut opening);
        zmtp::encode_subscription(b"", &mut opening);
        let mut stream = TcpStream::connect(control).await.unwrap();
        stream.write_all(&opening).await.unwrap();
        let told = Arc::clone(&self.told);
        self.listener = Some(tokio::spawn(async move {
            let (mut conversation, mut inbox) = (Conversation::new(SocketType::Sub), Vec::new());
            while stream.read_buf(&mut inbox).await.is_ok_and(|len| len > 0) {
                while let Some((said, len)) = conversation.next(&inbox).unwrap() {
                    if let Said::Message(frames) = said {
                        told.lock().unwrap().push(Told::new(&Control::decode(frames).unwrap()));
                    }
                    inbox.drain(..len);
                }
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
    fn new(control: &Control<'_>) -> Self {
        let until = UNIX_EPOCH + Duration::from_millis(control.delay_until);
        let ahead = until.duration_since(SystemTime::now()).unwrap_or_default();
        Self {
            client: String::from_utf8(control.identifier.to_vec()).unwrap(),
            until: Instant::now() + ahead,
        }
    }
}
