//! The RESP gate over sockets: what clients send at once, what they must not send, and what becomes of others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tollway::config::InlineAccess;
use tollway_server::Bounds;
use tollway_testbed::TEST_TIMEOUT;
use tollway_wire::resp::{KEY_MAX, LINE_MAX, encode_command, reply_len, reply_text};

use crate::support::{Harness, POLICY, read_all, start, start_with};

#[test]
fn a_long_command_that_arrives_in_parts_is_answered() {
    let gate = start();
    let mut client = gate.redis();
    let long = "x".repeat(700_000);
    let mut command = Vec::new();
    encode_command(&[b"PING", long.as_bytes()], &mut command);
    encode_command(&[b"PING"], &mut command);
    encode_command(&[b"PING", &long.as_bytes()[..40_000]], &mut command);
    for part in command.chunks(997) {
        client.send(part);
    }
    assert_eq!(client.reply(), format!("\"{long}\""));
    assert_eq!(client.reply(), "+PONG");
    assert_eq!(client.reply(), format!("\"{}\"", &long[..40_000]));
    assert_eq!(client.ask("PING"), "+PONG");
}

impl Harness {
    pub(crate) fn redis(&self) -> Client {
        let stream = TcpStream::connect(self.server.resp_addr().unwrap()).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        Client { stream, inbox: Vec::new() }
    }

    /// Returns all that comes after these bytes until the server closes.
    fn until_closed(&self, bytes: &[u8]) -> String {
        let mut client = self.redis();
        client.stream.write_all(bytes).unwrap();
        read_all(&mut client.stream)
    }

    fn metric(&self, name: &str) -> String {
        let page = self.get("/metrics").body;
        let line = page.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.rsplit(' ').next().unwrap().to_owned()
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    inbox: Vec<u8>,
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn reply(&mut self) -> String {
        loop {
            if let Some(len) = reply_len(&self.inbox).unwrap() {
                let reply: Vec<_> = self.inbox.drain(..len).collect();
                return reply_text(&reply).unwrap();
            }
            let mut bytes = [0; 4096];
            let read = self.stream.read(&mut bytes).unwrap();
            assert!(read > 0, "closed before the reply: {}", self.inbox.escape_ascii());
            self.inbox.extend_from_slice(&bytes[..read]);
        }
    }

    /// Sends a command of these words, and returns the reply as text.
    pub(crate) fn ask(&mut self, text: &str) -> String {
        self.send(&command(text));
        self.reply()
    }
}

fn command(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_command(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>(), &mut bytes);
    bytes
}

fn commands<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    texts.into_iter().flat_map(command).collect()
}

#[test]
fn what_arrives_together_is_answered_in_order() {
    let harness = start();
    let mut client = harness.redis();
    // More than fit into one batch, with replies that need no store, errors and single calls among them.
    let mut bytes = Vec::new();
    for _ in 0..50 {
        bytes.extend(commands([
            "CL.THROTTLE k 199 1 1",
            "PING",
            "CL.THROTTLE k x 1 1",
            "TOLL CHECK Login a",
        ]));
        bytes.extend(b"ECHO text\r\n\r\n");
    }
    client.send(&bytes);
    for taken in 1..=50 {
        assert_eq!(client.reply(), format!("*5 :0 :200 :{} :-1 :{taken}", 200 - taken));
        assert_eq!(client.reply(), "+PONG");
        assert_eq!(client.reply(), "-ERR max_burst must be an integer of 64 bits, not 'x'");
        assert!(client.reply().starts_with("*10 \"allowed\" :1"));
        assert_eq!(client.reply(), "\"text\"");
    }
    assert_eq!(harness.metric("tollway_resp_commands_total"), "250");
    assert_eq!(harness.metric("tollway_resp_errors_total"), "50");
    let decisions = "tollway_decisions_total{limit=\"inline/throttle\",verb=\"spend\",outcome=\"allow\"}";
    assert_eq!(harness.metric(decisions), "50");
}

#[test]
fn a_command_may_arrive_byte_by_byte() {
    let harness = start();
    let mut client = harness.redis();
    for byte in commands(["CL.THROTTLE k 0 1 60", "HELLO 3", "PING"]) {
        client.send(&[byte]);
    }
    assert_eq!(client.reply(), "*5 :0 :1 :0 :-1 :60");
    assert!(client.reply().starts_with("%7 \"server\" \"redis\""));
    assert_eq!(client.reply(), "+PONG");
}

#[test]
fn what_is_no_command_gets_an_error_and_the_others_their_answers() {
    let harness = start();
    let mut bystander = harness.redis();
    assert_eq!(bystander.ask("CL.THROTTLE by 9 1 60"), "*5 :0 :10 :9 :-1 :60");
    let cases: [(Vec<u8>, &str); 8] = [
        (
            b"*1\r\n$2000000000\r\n".to_vec(),
            "-ERR Protocol error: a command can have at most 1048576 bytes\r\n",
        ),
        (
            b"*2147483647\r\n".to_vec(),
            "-ERR Protocol error: a command can have at most 32 words; the connection is closed after more than 1024\r\n",
        ),
        (b"*-1\r\n".to_vec(), "-ERR Protocol error: invalid length\r\n"),
        (b"*1\r\n$-1\r\n".to_vec(), "-ERR Protocol error: invalid length\r\n"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n".to_vec(), "-ERR Protocol error: expected '$', got '*'\r\n"),
        (b"$4\r\nPING\r\n".to_vec(), "-ERR Protocol error: expected '*', got '$'\r\n"),
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nPING\r\n".to_vec(),
            "-ERR this is not an HTTP server\r\n",
        ),
        (
            vec![b'x'; LINE_MAX + 1],
            "-ERR Protocol error: a line of plain text can have at most 65536 bytes; send the command as an array\r\n",
        ),
    ];
    for (index, (bytes, error)) in cases.iter().enumerate() {
        let before = commands(["PING", "CL.THROTTLE k 99 1 60"]);
        let all = [&before, &**bytes, b"*1\r\n$4\r\nPING\r\n"].concat();
        let left = 99 - index;
        let owed = 60 * (index + 1);
        let expected = format!("+PONG\r\n*5\r\n:0\r\n:100\r\n:{left}\r\n:-1\r\n:{owed}\r\n{error}");
        assert_eq!(harness.until_closed(&all), expected, "{}", bytes[..bytes.len().min(60)].escape_ascii());
    }
    assert_eq!(harness.until_closed(&commands(["QUIT", "PING"])), "+OK\r\n");
    // Every prefix of a command waits, and whoever hangs up in the middle of one disturbs nobody.
    let whole = command("CL.THROTTLE by 9 1 60");
    for end in 1..whole.len() {
        harness.redis().send(&whole[..end]);
    }
    assert_eq!(bystander.ask("CL.THROTTLE by 9 1 60"), "*5 :0 :10 :8 :-1 :120");
    assert_eq!(harness.metric("tollway_resp_broken_total"), "7");
    harness.assert_alive();
}

/// If its connection is closed, redis-py 8.1 sends its whole pipeline again, up to ten times: what came before a key
/// that is too long would be charged each time.
#[test]
fn a_key_that_is_too_long_costs_only_its_own_command() {
    let harness = start();
    let mut client = harness.redis();
    let long = "k".repeat(KEY_MAX + 1);
    let bill = format!("TOLL SPEND {}", "Login a 1 ".repeat(11));
    let refused = [
        (format!("CL.THROTTLE {long} 50 1 3600"), "-ERR a key can have at most 512 bytes"),
        (format!("THROTTLE {long} 50 1 3600"), "-ERR a key can have at most 512 bytes"),
        (format!("TTL {long}"), "-ERR a key can have at most 512 bytes"),
        (format!("DEL a {long}"), "-ERR a key can have at most 512 bytes"),
        (format!("TOLL SPEND Login {long}"), "-ERR an id can have at most 512 bytes"),
        (format!("TOLL CHECK Login a 1 Login {long} 1"), "-ERR an id can have at most 512 bytes"),
        (format!("TOLL SPEND RULE r user={long}"), "-ERR the value of a selector can have at most 512 bytes"),
        (
            bill.trim_end().to_owned(),
            "-ERR a command can have at most 32 words; send several commands, or a longer bill over HTTP",
        ),
    ];
    for (index, (text, error)) in refused.iter().enumerate() {
        client.send(&commands(["CL.THROTTLE a 50 1 3600", text, "CL.THROTTLE a 50 1 3600"]));
        for left in [50 - 2 * index, 49 - 2 * index] {
            assert_eq!(client.reply(), format!("*5 :0 :51 :{left} :-1 :{}", 3600 * (51 - left)), "{text}");
            if left.is_multiple_of(2) {
                assert_eq!(client.reply(), *error);
            }
        }
    }
    assert_eq!(harness.metric("tollway_resp_errors_total"), refused.len().to_string());
    assert_eq!(harness.metric("tollway_resp_broken_total"), "0");
    // In a transaction it is an error like others: none of the commands is executed.
    for (text, _) in [&refused[0], &refused[7]] {
        assert_eq!(client.ask("MULTI"), "+OK");
        assert_eq!(client.ask("CL.THROTTLE b 50 1 3600"), "+QUEUED");
        assert!(client.ask(text).starts_with("-ERR a "));
        assert_eq!(client.ask("EXEC"), "-EXECABORT Transaction discarded because of previous errors.");
    }
    assert_eq!(client.ask("CL.THROTTLE b 50 1 3600"), "*5 :0 :51 :50 :-1 :3600");
}

#[test]
fn an_array_without_words_is_an_error_and_no_end() {
    let harness = start();
    let mut client = harness.redis();
    client.send(b"*0\r\n");
    assert_eq!(client.reply(), "-ERR empty command");
    assert_eq!(client.ask("PING"), "+PONG");
}

#[test]
fn numbers_of_clients_are_refused_where_that_is_configured() {
    let harness = start_with(POLICY, |settings| settings.gates.resp_inline = InlineAccess::Deny);
    let mut client = harness.redis();
    for text in ["CL.THROTTLE k 1 1 1", "THROTTLE k 1 1 1", "CL.THROTTLE k 1 1 1 -1", "DEL k", "TTL k"] {
        let reply = client.ask(text);
        assert!(
            reply.starts_with("-ERR this gate takes no numbers from clients; set \"inline: allow\""),
            "{reply}"
        );
    }
    assert!(client.ask("TOLL SPEND Login alice").starts_with("*10 \"allowed\" :1 \"remaining\" :4"));
    // By default, only a gate on loopback takes them.
    let any_interface = "0.0.0.0:0".parse().unwrap();
    let harness = start_with(POLICY, |settings| settings.gates.resp = Some(any_interface));
    let port = harness.server.resp_addr().unwrap().port();
    let mut client = Client { stream: TcpStream::connect(("127.0.0.1", port)).unwrap(), inbox: Vec::new() };
    assert!(client.ask("CL.THROTTLE k 1 1 1").starts_with("-ERR this gate takes no numbers"));
}

/// Numbers that a worker has parsed are not parsed again, also if another connection sends them.
#[test]
fn known_numbers_are_kept_in_a_transaction_and_may_change_at_any_command() {
    let harness = start_with(POLICY, |settings| settings.workers = 1);
    let (mut one, mut other) = (harness.redis(), harness.redis());
    assert_eq!(one.ask("CL.THROTTLE a 9 1 60"), "*5 :0 :10 :9 :-1 :60");
    assert_eq!(other.ask("CL.THROTTLE a 9 1 60"), "*5 :0 :10 :8 :-1 :120");
    assert_eq!(other.ask("MULTI"), "+OK");
    assert_eq!(other.ask("CL.THROTTLE a 9 1 60"), "+QUEUED");
    assert_eq!(one.ask("CL.THROTTLE a 9 1 60 3"), "*5 :0 :10 :5 :-1 :300");
    assert_eq!(other.ask("EXEC"), "*1 *5 :0 :10 :4 :-1 :360");
    other.send(&commands(["CL.THROTTLE b 9 1 60", "MULTI", "CL.THROTTLE b 9 1 60", "EXEC"]));
    for reply in ["*5 :0 :10 :9 :-1 :60", "+OK", "+QUEUED", "*1 *5 :0 :10 :8 :-1 :120"] {
        assert_eq!(other.reply(), reply);
    }
    // More different numbers than are settled together.
    let bursts: Vec<_> = (0..40).map(|burst| format!("THROTTLE c{burst} {} 1 60", 90_000 + burst)).collect();
    one.send(&commands(bursts.iter().map(String::as_str)));
    for burst in 0..40 {
        assert_eq!(one.reply(), format!("*5 :1 :{} :{} :60 :0", 90_000 + burst, 89_999 + burst));
    }
}

#[test]
fn a_transaction_has_a_bound() {
    let bounds = Bounds { transaction: 60, ..Bounds::default() };
    let harness = start_with(POLICY, |settings| settings.bounds = bounds);
    let mut client = harness.redis();
    assert_eq!(client.ask("MULTI"), "+OK");
    assert_eq!(client.ask("CL.THROTTLE a 9 1 1"), "+QUEUED");
    assert!(client.ask("CL.THROTTLE a 9 1 1").starts_with("-ERR the transaction is too long"));
    assert_eq!(client.ask("EXEC"), "-EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(client.ask("CL.THROTTLE a 9 1 1"), "*5 :0 :10 :9 :-1 :1");
}

#[test]
fn a_command_of_a_transaction_counts_once() {
    let harness = start();
    let mut client = harness.redis();
    for text in ["MULTI", "PING", "CL.THROTTLE a 9 1 1"] {
        client.ask(text);
    }
    assert_eq!(harness.metric("tollway_resp_commands_total"), "1", "nothing but MULTI is executed");
    assert_eq!(client.ask("EXEC"), "*2 +PONG *5 :0 :10 :9 :-1 :1");
    assert_eq!(harness.metric("tollway_resp_commands_total"), "4");
    // In a transaction that was refused, nothing is executed but MULTI, the refused command and EXEC.
    for text in ["MULTI", "PING", "NONSENSE", "PING", "EXEC"] {
        client.ask(text);
    }
    assert_eq!(harness.metric("tollway_resp_commands_total"), "7");
}

#[test]
fn a_full_gate_closes_a_transaction_that_does_not_go_on() {
    let harness = start_with(POLICY, |settings| {
        settings.gates.resp_connections.total = 2;
        settings.workers = 1;
    });
    let mut inside = [harness.redis(), harness.redis()];
    for client in &mut inside {
        assert_eq!(client.ask("MULTI"), "+OK");
        assert_eq!(client.ask("CL.THROTTLE a 9 1 1"), "+QUEUED");
    }
    assert_eq!(harness.redis().ask("PING"), "+PONG");
    let [longest_idle, other] = &mut inside;
    assert_eq!(read_all(&mut longest_idle.stream), "");
    assert_eq!(other.ask("EXEC"), "*1 *5 :0 :10 :9 :-1 :1");
}

#[test]
fn a_transaction_that_does_not_go_on_is_closed_and_an_idle_connection_is_not() {
    let harness = start_with(POLICY, |settings| settings.bounds.idle = Duration::from_millis(50));
    let (mut idle, mut waiting) = (harness.redis(), harness.redis());
    assert_eq!(idle.ask("PING"), "+PONG");
    assert_eq!(waiting.ask("MULTI"), "+OK");
    assert_eq!(read_all(&mut waiting.stream), "");
    assert_eq!(idle.ask("PING"), "+PONG");
    assert_eq!(harness.metric("tollway_connections_cut_total{when=\"idle\"}"), "1");
}

#[test]
fn a_transaction_is_not_kept_by_what_does_not_execute_it() {
    let harness = start_with(POLICY, |settings| settings.bounds.idle = Duration::from_millis(50));
    let mut client = harness.redis();
    assert_eq!(client.ask("MULTI"), "+OK");
    let mut writer = client.stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || while writer.write_all(b"\n").is_ok() {});
    assert_eq!(read_all(&mut client.stream), "");
    writing.join().unwrap();
    assert_eq!(harness.metric("tollway_connections_cut_total{when=\"idle\"}"), "1");
}

#[test]
fn a_transaction_is_not_kept_by_reads_that_end_in_half_a_command() {
    let harness = start_with(POLICY, |settings| settings.bounds.idle = Duration::from_millis(50));
    let mut client = harness.redis();
    assert_eq!(client.ask("MULTI"), "+OK");
    client.send(b"PI");
    let until = Instant::now() + TEST_TIMEOUT;
    while client.stream.write_all(b"NG\nPI").is_ok()
        && client.stream.read(&mut [0; 64]).is_ok_and(|read| read > 0)
    {
        assert!(Instant::now() < until, "it is closed while the client sends");
    }
    assert_eq!(harness.metric("tollway_connections_cut_total{when=\"frame\"}"), "1");
}

#[test]
fn a_bucket_in_a_store_that_gives_no_answer_is_not_said_to_be_missing() {
    let harness = start_with("store: redis://127.0.0.1:1\nlimits: {}", |_| {});
    let mut client = harness.redis();
    let no_answer = "-ERR the store gives no answer; try again later";
    for text in ["TTL k", "PTTL k", "DEL k"] {
        assert_eq!(client.ask(text), no_answer, "{text}");
    }
}

#[test]
fn what_could_not_be_given_back_is_not_counted() {
    let harness = start_with("store: redis://127.0.0.1:1\nlimits: {}", |_| {});
    assert!(harness.redis().ask("CL.THROTTLE k 15 30 60 -1").starts_with("-ERR "));
    let refunds = "tollway_refunds_total{limit=\"inline/throttle\"}";
    assert_eq!(harness.metric(refunds), "");
    let harness = start();
    assert_eq!(harness.redis().ask("CL.THROTTLE k 15 30 60 -1"), "*5 :0 :16 :16 :-1 :0");
    assert_eq!(harness.metric(refunds), "1");
}

#[test]
fn a_client_that_reads_late_gets_every_reply() {
    let harness = start();
    let mut client = harness.redis();
    // Far more replies than are collected at once, and than the system buffers.
    let echo = command(&format!("ECHO {}", "x".repeat(1000)));
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || (0..4_000).for_each(|_| sender.write_all(&echo).unwrap()));
    for _ in 0..4_000 {
        assert_eq!(client.reply().len(), 1_002);
    }
    sending.join().unwrap();
}
