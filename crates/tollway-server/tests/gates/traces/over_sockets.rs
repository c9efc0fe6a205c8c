//! The text, the Throttr, the RESP and the Smockron gate, asked over real sockets.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use tollway::Config;
use tollway::config::describe;
use tollway::core::{Policy, Timestamp};
use tollway::trace::{TraceReply, TraceRequest, TraceTarget, ZmqMessage};
use tollway_testbed::{TEST_TIMEOUT, ZmqSocket, eventually};
use tollway_wire::throttr::{self, ThrottrCommand};
use tollway_wire::{resp, text};

use super::over_http::OverHttp;
use crate::support::Harness;
use crate::support::config_file::WatchedFile;
use crate::support::rls::{RlsClient, from_trace, to_trace};

/// Puts every event to the gate it names.
pub(crate) struct OverSockets {
    http: OverHttp,
    text: UdpSocket,
    throttr: TcpStream,
    /// The bytes that were sent over TCP and are not yet a whole request.
    half: Vec<u8>,
    resp: TcpStream,
    pings: u64,
    publisher: ZmqSocket,
    subscriber: ZmqSocket,
    accounted: u64,
    rls: RlsClient,
    file: WatchedFile,
    /// The expressions of the trace by the names that they have in its configurations.
    rules: BTreeMap<String, String>,
}

impl OverSockets {
    pub(crate) fn new(gate: Harness, file: WatchedFile, rules: BTreeMap<String, String>) -> Self {
        let text = UdpSocket::bind("127.0.0.1:0").unwrap();
        text.connect(gate.server.text_addr().unwrap()).unwrap();
        text.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let throttr = connect(gate.server.throttr_addr());
        let resp = connect(gate.server.resp_addr());
        let (publisher, subscriber) = (gate.publisher(), gate.subscriber(&[b""]));
        let rls = RlsClient::new(gate.server.rls_addr().unwrap());
        Self {
            http: OverHttp::new(gate),
            text,
            throttr,
            half: Vec::new(),
            resp,
            pings: 0,
            publisher,
            subscriber,
            accounted: 0,
            rls,
            file,
            rules,
        }
    }

    /// Returns the answer, if one is due; if none is, what comes back before two pings are answered in turn.
    /// Replies that are sent together have no order, nor have those that wait for the store.
    fn text(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        self.text.send(datagram).unwrap();
        let due = text::decode(datagram).is_some();
        let mut answer = None;
        for _ in 0..2 {
            self.pings += 1;
            let pong = format!("{}000000000000 pong", self.pings).into_bytes();
            self.text.send(format!("{}000000000000 ping", self.pings).as_bytes()).unwrap();
            let mut ponged = false;
            while !ponged || (due && answer.is_none()) {
                let mut reply = vec![0; 2_000];
                let len = self.text.recv(&mut reply).unwrap();
                reply.truncate(len);
                if reply == pong {
                    ponged = true;
                } else {
                    assert_eq!(answer.replace(reply), None, "one datagram has two answers");
                }
            }
        }
        answer
    }

    fn throttr(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.throttr.write_all(bytes).unwrap();
        self.half.extend_from_slice(bytes);
        let mut replies = Vec::new();
        loop {
            match throttr::decode(&self.half) {
                Ok(Some((request, len))) => {
                    let to_query = matches!(request.command, ThrottrCommand::Query);
                    read_reply(&mut self.throttr, to_query, &mut replies);
                    self.half.drain(..len);
                }
                Ok(None) => return replies,
                Err(_) => {
                    assert_eq!(self.throttr.read(&mut [0]).unwrap(), 0, "what is no request closes");
                    self.throttr = connect(self.http.gate.server.throttr_addr());
                    self.half.clear();
                    return replies;
                }
            }
        }
    }

    fn resp(&mut self, words: &[Vec<u8>]) -> String {
        let (mut command, mut reply) = (Vec::new(), Vec::new());
        resp::encode_command(&words.iter().map(|word| &**word).collect::<Vec<_>>(), &mut command);
        self.resp.write_all(&command).unwrap();
        while resp::reply_len(&reply).unwrap().is_none() {
            read_byte(&mut self.resp, &mut reply);
        }
        resp::reply_text(&reply).unwrap()
    }

    fn smockron(&mut self, message: &ZmqMessage) -> Vec<ZmqMessage> {
        self.publisher.send(&message.iter().map(|frame| &**frame).collect::<Vec<_>>());
        self.accounted += 1;
        self.http.gate.accounted(self.accounted);
        self.subscriber.published()
    }

    /// Replaces the configuration file, and returns when the server has read it: if it is good, when its policy is in
    /// force.
    fn reload(&mut self, text: &str) -> TraceReply {
        let rules: String = self.rules.iter().map(|(name, text)| format!("{name}: {text:?}, ")).collect();
        let text = text.replacen("rules: {", &format!("rules: {{{rules}"), 1);
        let gate = &self.http.gate;
        let failed = gate.reloads("failed");
        self.file.replace(&text);
        gate.server.reload();
        match Config::parse(&text, "reload") {
            Ok(config) => {
                // The server also looks at the file by itself, so a count would not tell which content it has read.
                let described = |policy: &Policy| {
                    describe(&Config { policy: policy.clone(), ..config.clone() }).to_string()
                };
                let expected = described(&config.policy);
                eventually("the new policy", || described(&gate.limiter.policy()) == expected);
                TraceReply::Reloaded
            }
            Err(errors) => {
                eventually("a failed reload", || gate.reloads("failed") > failed);
                TraceReply::Error(errors.to_string())
            }
        }
    }
}

fn connect(address: Option<SocketAddr>) -> TcpStream {
    let stream = TcpStream::connect(address.unwrap()).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

/// Reads byte by byte, so that nothing of the next reply is taken.
fn read_reply(stream: &mut TcpStream, to_query: bool, replies: &mut Vec<u8>) {
    let start = replies.len();
    while throttr::decode_reply(&replies[start..], to_query).unwrap().is_none() {
        read_byte(stream, replies);
    }
}

fn read_byte(stream: &mut TcpStream, replies: &mut Vec<u8>) {
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    replies.push(byte[0]);
}

impl TraceTarget for OverSockets {
    fn answer(&mut self, at: Timestamp, request: &TraceRequest) -> TraceReply {
        self.http.gate.clock.set(at);
        match request {
            TraceRequest::Limit(_) | TraceRequest::Rule(_) => self.http.answer(at, request),
            TraceRequest::Text(datagram) => TraceReply::Text(self.text(datagram)),
            TraceRequest::Throttr(bytes) => TraceReply::Throttr(self.throttr(bytes)),
            TraceRequest::Resp(words) => TraceReply::Resp(self.resp(words)),
            TraceRequest::Smockron(message) => TraceReply::Smockron(self.smockron(message)),
            TraceRequest::Rls(json) => match self.rls.ask(from_trace(json)) {
                Ok(answer) => TraceReply::Rls(to_trace(&answer)),
                Err(status) => TraceReply::Error(status.message().to_owned()),
            },
            TraceRequest::Reload(config) => self.reload(config),
        }
    }
}
