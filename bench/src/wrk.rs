//! Runs `wrk`, which loads a server with one request and measures how many it answers.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use crate::servers::on_client_core;

/// The request that `wrk` sends repeatedly.
pub struct WrkLoad {
    /// The URL that requests are sent to.
    pub url: String,
    /// The body that makes the request a POST; `None` is a GET.
    pub body: Option<&'static str>,
}

impl WrkLoad {
    /// Runs `wrk` with 50 kept-alive connections for `seconds`, and returns the requests a second.
    pub fn run(&self, scratch: &Path, seconds: u32) -> io::Result<f64> {
        let script = scratch.join("load.lua");
        fs::write(&script, self.script())?;
        let mut wrk = Command::new("wrk");
        wrk.args(["--threads", "1", "--connections", "50", "--duration"]).arg(format!("{seconds}s"));
        wrk.arg("--script").arg(&script).arg(&self.url);
        let output = on_client_core(&wrk).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let rate = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
        rate.and_then(|rate| rate.trim().parse().ok()).ok_or_else(|| {
            io::Error::other(format!("wrk said: {text}{}", String::from_utf8_lossy(&output.stderr)))
        })
    }

    fn script(&self) -> String {
        self.body.map_or_else(String::new, |body| {
            let body = body.replace('"', "\\\"");
            format!("wrk.method = \"POST\"\nwrk.body = \"{body}\"\nwrk.headers[\"Content-Type\"] = \"application/json\"\n")
        })
    }
}
