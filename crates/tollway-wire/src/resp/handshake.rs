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
