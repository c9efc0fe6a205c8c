//! Reads the events of a server on a thread, and connects again when the connection ends.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use std::{io, thread};

use tollway_client::ClientError;
use tollway_client::core::ErrorChain;
use tollway_client::http::blocking::Client;
use tollway_client::http::{EventStream, LiveEvent};

/// The events that wait for the screen. While it is full nothing is read, and the server drops what is not read.
const QUEUE: usize = 16;
/// The time between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);

/// Tells the screen what has happened.
#[derive(Debug)]
pub(crate) enum News {
    Event(LiveEvent),
    /// The connection ended, or could not be opened, for this reason.
    Lost(String),
}

/// Starts to read a stream. The thread ends when nobody receives any more.
pub(crate) fn start(client: Client, stream: EventStream) -> io::Result<Receiver<News>> {
    let (sender, receiver) = sync_channel(QUEUE);
    let builder = thread::Builder::new().name("tollway-live".to_owned());
    builder.spawn(move || read(&client, stream, &sender))?;
    Ok(receiver)
}

fn read(client: &Client, stream: EventStream, news: &SyncSender<News>) {
    let mut connected = Ok(stream);
    loop {
        let reason = match connected {
            Ok(stream) => match pass_on(stream, news) {
                Some(reason) => reason,
                None => return,
            },
            Err(error) => reason(&error),
        };
        if news.send(News::Lost(reason)).is_err() {
            return;
        }
        thread::sleep(RETRY);
        connected = client.live();
    }
}

/// Passes events on until the stream ends, and returns the reason. Returns `None` if nobody receives them.
fn pass_on(mut stream: EventStream, news: &SyncSender<News>) -> Option<String> {
    loop {
        let event = match stream.next_event() {
            Ok(event) => event,
            Err(error) => return Some(reason(&error)),
        };
        match LiveEvent::from_event(&event) {
            Ok(Some(event)) => news.send(News::Event(event)).ok()?,
            // An event that a newer server sends.
            Ok(None) => {}
            Err(error) => return Some(format!("an event of the server cannot be read: {error}")),
        }
    }
}

fn reason(error: &ClientError) -> String {
    ErrorChain(error).to_string()
}
