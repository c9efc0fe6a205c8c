//! HTTP/1.1 over TCP: reads what has arrived, answers all of it, writes once.

mod route;

use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollway_wire::http::{
    Framer, FramerEvent, FramingError, Method, MissingPart, ProblemDetails, ResponseWriter,
};

use super::patience::{OutOfPatience, Patience};
use super::{Worker, linger};

/// Room for what one read brings: a few dozen requests, or one with a browser's cookies.
const READ_SIZE: usize = 4 << 10;
/// Buffers above this are given back once they are empty, so that one large request does not cost for ever.
const KEEP_SIZE: usize = 16 << 10;

/// Talks to one client until it hangs up, breaks the protocol, is too slow, or the server drains.
pub(super) async fn converse(mut stream: TcpStream, worker: &Worker) {
    let ended = Conversation::new(worker).run(&mut stream).await;
    let metrics = &worker.metrics;
    match ended {
        End::Closed => return,
        End::Refused => {}
        End::TooSlow(MissingPart::Start) => return metrics.cut_idle.one(),
        End::TooSlow(MissingPart::Head) => metrics.cut_head.one(),
        End::TooSlow(MissingPart::Body) => metrics.cut_body.one(),
        End::Stalled => return metrics.cut_write.one(),
    }
    linger(&mut stream, worker.shared.bounds.linger).await;
}

/// Tells a client that there are too many.
pub(super) async fn turn_away(mut stream: TcpStream, worker: &Worker) {
    let mut conversation = Conversation::new(worker);
    conversation.refuse(&ProblemDetails::too_many_connections(worker.shared.slots.max()));
    if conversation.flush(&mut stream).await.is_ok() {
        linger(&mut stream, worker.shared.bounds.linger).await;
    }
}

/// How a conversation ended.
enum End {
    /// Both sides know.
    Closed,
    /// The client has been told why, and may still be sending.
    Refused,
    /// The client did not send the rest of a request, and has been told so.
    TooSlow(MissingPart),
    /// The client does not read.
    Stalled,
}

/// Of a write that came to nothing.
impl From<OutOfPatience> for End {
    fn from(error: OutOfPatience) -> Self {
        match error {
            OutOfPatience::TooSlow => Self::Stalled,
            OutOfPatience::Failed => Self::Closed,
        }
    }
}

/// What to do after answering what had arrived.
enum Next {
    Read(MissingPart),
    /// There was no room for more answers; the rest is still to be looked at.
    AnswerOn,
    Close,
    Refuse(FramingError),
}

struct Conversation<'w> {
    worker: &'w Worker,
    framer: Framer,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    scratch: Vec<u8>,
    date: Date,
    patience: Patience,
    /// When the last request was answered: asking what time it is costs as much as deciding.
    answered_at: Instant,
}

impl<'w> Conversation<'w> {
    fn new(worker: &'w Worker) -> Self {
        let bounds = &worker.shared.bounds;
        Self {
            worker,
            framer: Framer::new(bounds.head, bounds.body),
            inbox: Vec::with_capacity(READ_SIZE),
            outbox: Vec::new(),
            scratch: Vec::new(),
            date: Date::default(),
            patience: Patience::new(bounds.idle),
            answered_at: Instant::now(),
        }
    }

    async fn run(&mut self, stream: &mut TcpStream) -> End {
        let mut drain = pin!(self.worker.drain.clone().started());
        let mut draining = false;
        let mut awaited = MissingPart::Start;
        let mut until = self.deadline(MissingPart::Start);
        loop {
            self.make_room();
            let read = stream.read_buf(&mut self.inbox);
            // Half a request may take its time; a connection without one has no reason to stay.
            let idle = awaited == MissingPart::Start && !draining;
            let heard = self.patience.read(until, read, idle.then_some(drain.as_mut())).await;
            match heard {
                Ok(Some(0)) | Err(OutOfPatience::Failed) => return End::Closed,
                Ok(Some(_)) => {}
                Ok(None) => {
                    draining = true;
                    until = Instant::now() + self.worker.shared.bounds.drain_idle;
                    continue;
                }
                Err(OutOfPatience::TooSlow) if draining && awaited == MissingPart::Start => {
                    return End::Closed;
                }
                Err(OutOfPatience::TooSlow) => return self.too_slow(stream, awaited).await,
            }
            let next = loop {
                let next = self.answer_all().await;
                if let Err(error) = self.flush(stream).await {
                    return error.into();
                }
                match next {
                    Next::AnswerOn => {}
                    next => break next,
                }
            };
            match next {
                Next::Read(awaiting) => {
                    // A part that is still awaited has the deadline it had: every byte would else earn another.
                    if awaiting != awaited || awaiting == MissingPart::Start {
                        until = self.deadline(awaiting);
                        awaited = awaiting;
                    }
                }
                Next::Refuse(error) => {
                    self.refuse(&ProblemDetails::from(error));
                    return self.flush(stream).await.map_or_else(End::from, |()| End::Refused);
                }
                Next::Close | Next::AnswerOn => {
                    let _ = stream.shutdown().await;
                    return End::Closed;
                }
            }
        }
    }

    /// Answers every whole request of the inbox, as far as there is room for the answers.
    async fn answer_all(&mut self) -> Next {
        let Self { worker, framer, inbox, outbox, scratch, date, .. } = self;
        let in_force = worker.service.in_force();
        let mut started = Instant::now();
        date.refresh(started);
        let mut start = 0;
        let next = loop {
            if outbox.len() > worker.shared.bounds.outbox {
                break Next::AnswerOn;
            }
            match framer.next(&inbox[start..]) {
                Ok(FramerEvent::Request(request)) => {
                    let close = request.close || worker.drain.has_started();
                    let head_only = request.method == Method::Head;
                    let response = ResponseWriter { outbox, scratch, date: date.text(), close, head_only };
                    let decided = route::answer(&request, worker, &in_force, response).await;
                    start += request.len;
                    let ended = Instant::now();
                    if decided {
                        worker.metrics.latency.record(ended - started);
                    }
                    started = ended;
                    if close {
                        break Next::Close;
                    }
                }
                Ok(FramerEvent::Continue) => outbox.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"),
                Ok(FramerEvent::Incomplete(awaiting)) => break Next::Read(awaiting),
                Err(error) => break Next::Refuse(error),
            }
        };
        inbox.drain(..start);
        self.answered_at = started;
        next
    }

    async fn flush(&mut self, stream: &mut TcpStream) -> Result<(), OutOfPatience> {
        // Nearly always all of it fits at once, and nobody has to wait.
        let written = if self.outbox.is_empty() { 0 } else { stream.try_write(&self.outbox).unwrap_or(0) };
        if written < self.outbox.len() {
            let until = Instant::now() + self.worker.shared.bounds.write_time;
            self.patience.write(until, stream.write_all(&self.outbox[written..])).await?;
        }
        self.outbox.clear();
        self.outbox.shrink_to(KEEP_SIZE);
        Ok(())
    }

    fn refuse(&mut self, problem: &ProblemDetails) {
        let Self { worker, outbox, scratch, date, .. } = self;
        date.refresh(Instant::now());
        let response = ResponseWriter { outbox, scratch, date: date.text(), close: true, head_only: false };
        worker.metrics.responded(response.problem(problem));
    }

    async fn too_slow(&mut self, stream: &mut TcpStream, awaited: MissingPart) -> End {
        let part = match awaited {
            MissingPart::Start => return End::TooSlow(awaited),
            MissingPart::Head => "rest of the headers",
            MissingPart::Body => "rest of the body",
        };
        self.refuse(&ProblemDetails::request_timeout(part));
        self.flush(stream).await.map_or_else(End::from, |()| End::TooSlow(awaited))
    }

    fn deadline(&self, awaiting: MissingPart) -> Instant {
        let bounds = &self.worker.shared.bounds;
        self.answered_at
            + match awaiting {
                MissingPart::Start => bounds.idle,
                MissingPart::Head => bounds.head_time,
                MissingPart::Body => bounds.body_time,
            }
    }

    fn make_room(&mut self) {
        if self.inbox.is_empty() {
            self.inbox.shrink_to(KEEP_SIZE);
        }
        self.inbox.reserve(READ_SIZE);
    }
}

/// The `Date` header, written anew when the second has passed.
#[derive(Default)]
struct Date {
    text: String,
    until: Option<Instant>,
}

impl Date {
    fn refresh(&mut self, now: Instant) {
        if self.until.is_none_or(|until| now >= until) {
            self.text = httpdate::fmt_http_date(SystemTime::now());
            self.until = Some(now + Duration::from_secs(1));
        }
    }

    fn text(&self) -> &str {
        &self.text
    }
}
