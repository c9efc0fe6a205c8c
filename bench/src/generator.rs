//! Runs the load generator `tollway bench` on the client core, and reads its results.

use std::io;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use crate::servers::on_client_core;

/// The path of the `tollway` program that generates load.
pub struct LoadGenerator(pub String);

/// The figures that one run measured.
#[derive(Clone, Copy, Debug)]
pub struct LoadResult {
    /// Requests that were answered.
    pub requests: f64,
    /// Requests a second.
    pub rate: f64,
    /// The 99th percentile of the latency, in nanoseconds.
    pub p99: f64,
    /// The 99.9th percentile of the latency, in nanoseconds.
    pub p999: f64,
    /// The longest latency, in nanoseconds.
    pub max: f64,
    /// Requests that were denied.
    pub denied: u64,
    /// The number of datagrams that were not answered.
    pub unanswered: u64,
}

impl LoadGenerator {
    /// Runs `tollway bench PROTOCOL --addr ADDRESS FLAGS`. Errors in the answers are errors of the run.
    pub fn run(&self, protocol: &str, address: SocketAddr, flags: &str) -> io::Result<LoadResult> {
        let mut command = Command::new(&self.0);
        command.args(["bench", protocol, "--json", "--addr"]).arg(address.to_string());
        command.args(flags.split_whitespace());
        let output = on_client_core(&command).output()?;
        let wrong = |what: &str| {
            let (said, complained) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            io::Error::other(format!("{command:?} {what}: {said}{complained}"))
        };
        if !output.status.success() {
            return Err(wrong("failed"));
        }
        let said: Value = serde_json::from_slice(&output.stdout)?;
        let number = |value: &Value| value.as_f64().ok_or_else(|| wrong("left something out"));
        if number(&said["errors"])? > 0.0 {
            return Err(wrong("was answered by errors"));
        }
        Ok(LoadResult {
            requests: number(&said["requests"])?,
            rate: number(&said["requests_per_second"])?,
            p99: number(&said["latency_ns"]["p99"])?,
            p999: number(&said["latency_ns"]["p999"])?,
            max: number(&said["latency_ns"]["max"])?,
            denied: said["denied"].as_u64().unwrap_or_default(),
            unanswered: said["unanswered"].as_u64().unwrap_or_default(),
        })
    }
}
