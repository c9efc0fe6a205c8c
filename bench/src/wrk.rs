//! Runs `wrk`, which loads a server over HTTP and measures how many requests it answers.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use crate::servers::{BenchServer, on_client_core};

/// The number of different ids where a request has one of many. Each has seven digits, so that all requests have the
/// same length.
pub const IDS: u32 = 1_000_000;
const FIRST_ID: u32 = 1_000_000;

/// The requests that `wrk` sends repeatedly.
#[derive(Clone, Debug)]
pub struct WrkLoad {
    /// The path that requests are sent to, with `{id}` where the id is.
    pub path: String,
    /// The body that makes the request a POST, with `{id}` where the id is; `None` is a GET.
    pub body: Option<String>,
    /// True if each request has one of [`IDS`] ids, at random. Otherwise all have the first.
    pub many_ids: bool,
}

/// The results of one run, with the CPU time of the server.
#[derive(Clone, Copy, Debug)]
pub struct WrkResult {
    /// Requests a second.
    pub rate: f64,
    /// The nanoseconds of CPU time that the server took for a request.
    pub cpu_nanos: f64,
    /// The share of the answers whose status was neither 2xx nor 3xx.
    pub refused: f64,
}

impl WrkLoad {
    /// Runs `wrk` with 50 kept-alive connections for about `seconds`, which it takes in whole numbers.
    pub fn run(&self, server: &BenchServer, scratch: &Path, seconds: f64) -> io::Result<WrkResult> {
        let script = scratch.join("load.lua");
        fs::write(&script, self.script())?;
        let mut wrk = Command::new("wrk");
        wrk.args(["--threads", "1", "--connections", "50", "--duration"])
            .arg(format!("{:.0}s", seconds.ceil()));
        wrk.arg("--script").arg(&script).arg(format!("http://{}/", server.address));
        let before = server.cpu_time()?;
        let output = on_client_core(&wrk).output()?;
        let busy = server.cpu_time()? - before;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (rate, requests, refused) = read_output(&text).ok_or_else(|| {
            io::Error::other(format!("wrk said: {text}{}", String::from_utf8_lossy(&output.stderr)))
        })?;
        Ok(WrkResult { rate, cpu_nanos: busy.as_nanos() as f64 / requests, refused: refused / requests })
    }

    /// Returns one request with this id, from 0 to [`IDS`].
    pub fn request(&self, id: u32) -> String {
        self.around_ids().join(&(FIRST_ID + id).to_string())
    }

    /// Returns the text of a request, in the pieces that are around the ids.
    fn around_ids(&self) -> Vec<String> {
        let id = FIRST_ID.to_string();
        let request = self.body.as_ref().map_or_else(
            || format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", self.path),
            |body| {
                let length = body.replace("{id}", &id).len();
                let head = "Host: localhost\r\nContent-Type: application/json";
                format!("POST {} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}", self.path)
            },
        );
        request.split("{id}").map(str::to_owned).collect()
    }

    /// Returns a script that joins the pieces itself: `wrk.format` would take longer than the server.
    fn script(&self) -> String {
        let literals: Vec<_> = self.around_ids().iter().map(|piece| format!("{piece:?}")).collect();
        let request = if self.many_ids {
            literals.join(&format!(" .. math.random({FIRST_ID}, {}) .. ", FIRST_ID + IDS - 1))
        } else {
            "one".to_owned()
        };
        // Each run is another stream of ids.
        format!(
            "math.randomseed(os.time())\nlocal one = {}\nrequest = function() return {request} end\n",
            literals.join(&format!(" .. {FIRST_ID} .. "))
        )
    }
}

/// Returns the requests a second, all requests, and those whose status was neither 2xx nor 3xx.
fn read_output(text: &str) -> Option<(f64, f64, f64)> {
    let number = |line: &str| line.trim().parse::<f64>().ok();
    let rate = text.lines().find_map(|line| number(line.strip_prefix("Requests/sec:")?))?;
    let requests = text.lines().find_map(|line| number(line.split_once(" requests in ")?.0))?;
    let refused =
        text.lines().find_map(|line| number(line.trim().strip_prefix("Non-2xx or 3xx responses:")?));
    // A socket error would make the requests fewer than those that the server had.
    (!text.contains("Socket errors")).then_some((rate, requests, refused.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_all_ids_have_one_length() {
        let body = Some(r#"{"limit":"PerUser","id":"{id}"}"#.to_owned());
        let load = WrkLoad { path: "/v1/spend".to_owned(), body, many_ids: true };
        let [first, last] = [load.request(0), load.request(IDS - 1)];
        assert!(
            first.ends_with("\r\nContent-Length: 34\r\n\r\n{\"limit\":\"PerUser\",\"id\":\"1000000\"}"),
            "{first}"
        );
        assert!(first.len() == last.len() && last.contains("1999999"), "{last}");
    }

    #[test]
    fn the_output_has_refusals_or_none() {
        let text =
            "  180123 requests in 2.00s, 30MB read\n  Non-2xx or 3xx responses: 12\nRequests/sec:  90061.5\n";
        assert_eq!(read_output(text), Some((90_061.5, 180_123.0, 12.0)));
        assert_eq!(read_output("Requests/sec:  1\n  2 requests in 2.00s, 1MB read\n"), Some((1.0, 2.0, 0.0)));
        assert_eq!(read_output(&format!("{text}  Socket errors: connect 0, read 3")), None);
    }
}
