//! A stream of events that a server sends until one side ends the connection.

use std::time::{Duration, Instant};

use tollway_wire::http::{EventDecoder, ServerSentEvent};

use crate::blocking_tcp::BlockingConnection;
use crate::{ClientError, InvalidResponse};

/// The events of one response. They are read when they are asked for: a server drops what a slow reader does not take.
#[derive(Debug)]
pub struct EventStream {
    connection: BlockingConnection,
    decoder: EventDecoder,
    address: String,
    timeout: Duration,
}

impl EventStream {
    /// Reads events from an open connection. `arrived` has the bytes that came behind the head of the response.
    pub(super) fn new(
        connection: BlockingConnection,
        arrived: &[u8],
        address: &str,
        timeout: Duration,
    ) -> Self {
        let mut decoder = EventDecoder::default();
        decoder.push(arrived);
        Self { connection, decoder, address: address.to_owned(), timeout }
    }

    /// Waits for the next event, for at most the timeout of the client. A live server sends one each second, so a
    /// timeout means that the server or the network is gone.
    pub fn next_event(&mut self) -> Result<ServerSentEvent, ClientError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let event = self.decoder.next_event().map_err(|error| ClientError::InvalidResponse {
                address: self.address.clone(),
                source: InvalidResponse::EventStream(error),
            })?;
            if let Some(event) = event {
                return Ok(event);
            }
            let mut arrived = Vec::new();
            let read = self.connection.read(&mut arrived, deadline);
            read.map_err(|error| ClientError::exchanging(&self.address, self.timeout, error))?;
            self.decoder.push(&arrived);
        }
    }
}
