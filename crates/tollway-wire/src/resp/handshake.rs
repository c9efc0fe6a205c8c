//! The replies by which clients find out what they are connected to.

use super::reply::{ReplyWriter, RespVersion};

/// The version of Redis whose commands these are, for clients that ask before they use one.
const REDIS_VERSION: &str = "7.2.0";

/// The commands, each with the number of its words (negative: at least so many) and the place of its first key.
pub const COMMANDS: [(&str, i64, i64); 20] = [
    ("auth", -2, 0),
    ("cl.throttle", -5, 1),
    ("client", -2, 0),
    ("command", -1, 0),
    ("config", -2, 0),
    ("del", -2, 1),
    ("discard", 1, 0),
    ("echo", 2, 0),
    ("exec", 1, 0),
    ("hello", -1, 0),
    ("info", -1, 0),
    ("multi", 1, 0),
    ("ping", -1, 0),
    ("pttl", 2, 1),
    ("quit", -1, 0),
    ("reset", 1, 0),
    ("select", 2, 0),
    ("throttle", -5, 1),
    ("toll", -4, 0),
    ("ttl", 2, 1),
];

/// The commands that Redis does not have, each with its words and with what it does.
const DOCS: [(&str, &str); 3] = [
    (
        "cl.throttle",
        "CL.THROTTLE key max_burst count period [quantity]: takes tokens from the bucket of a key, under these numbers",
    ),
    ("throttle", "THROTTLE key max_burst count period [quantity]: the same, with the reply of throttlecrab"),
    (
        "toll",
        "TOLL SPEND|CHECK|REFUND|RESET limit id [cost] [limit id cost ...] [RULE name selector=value ...]: asks under \
         limits and rules of the configuration",
    ),
];

/// Appends the reply to `HELLO`, which has the number of the connection.
pub fn put_hello(connection: i64, version: RespVersion, reply: &mut ReplyWriter<'_>) {
    reply.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(version.number());
    reply.bulk(b"id");
    reply.integer(connection);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}

/// Appends the reply to `INFO`. Clients wait until nothing is loading.
pub fn put_info(tollway_version: &str, reply: &mut ReplyWriter<'_>) {
    reply.text(&format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\ntollway_version:{tollway_version}\r\nredis_mode:standalone\r\n\
         # Persistence\r\nloading:0\r\n# Replication\r\nrole:master\r\n"
    ));
}

/// Appends the reply to `COMMAND`.
pub fn put_commands(reply: &mut ReplyWriter<'_>) {
    reply.array(COMMANDS.len());
    for (name, words, first_key) in COMMANDS {
        reply.array(6);
        reply.bulk(name.as_bytes());
        reply.integer(words);
        reply.array(0);
        let step = i64::from(first_key > 0);
        let last_key = if name == "del" { -1 } else { first_key };
        for number in [first_key, last_key, step] {
            reply.integer(number);
        }
    }
}

/// Appends the reply to `COMMAND DOCS`: the documents of these commands, or of all if there are no names. The commands
/// that Redis has too need none.
pub fn put_command_docs(names: &[&[u8]], reply: &mut ReplyWriter<'_>) {
    let is_asked = |command: &str| {
        names.is_empty() || names.iter().any(|name| name.eq_ignore_ascii_case(command.as_bytes()))
    };
    let asked = || DOCS.into_iter().filter(|(command, _)| is_asked(command));
    reply.map(asked().count());
    for (command, summary) in asked() {
        reply.bulk(command.as_bytes());
        reply.map(3);
        // redis-cli shows these three.
        for (name, value) in [("summary", summary), ("since", "1.0.0"), ("group", "module")] {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
    }
}
