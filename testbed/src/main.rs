//! Starts Redis servers for tests that are not written in Rust, and prints their URLs.
//!
//! ```console
//! $ tollway-testbed redis cluster
//! redis://127.0.0.1:40913
//! redis+cluster://127.0.0.1:41001,127.0.0.1:41002,…
//! ```
//!
//! The servers end when standard input is closed.

use std::io;
use std::process::ExitCode;

use tollway_testbed::{RedisCluster, RedisServer};

enum StartedServer {
    Redis(RedisServer),
    Cluster(RedisCluster),
}

fn main() -> ExitCode {
    let mut servers = Vec::new();
    for name in std::env::args().skip(1) {
        let server = match &*name {
            "redis" => StartedServer::Redis(RedisServer::start()),
            "cluster" => StartedServer::Cluster(RedisCluster::start()),
            _ => {
                eprintln!("there is `redis` and `cluster`, and no {name:?}");
                return ExitCode::FAILURE;
            }
        };
        println!("{}", server.url());
        servers.push(server);
    }
    // If standard input cannot be read, the parent process is gone.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    ExitCode::SUCCESS
}

impl StartedServer {
    fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }
}
