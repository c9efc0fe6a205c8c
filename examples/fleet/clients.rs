//! Two clients, who ask one service and then the other, whatever the answer.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// One who asks for five times as much as it may, and one who asks for less: how many requests a second.
pub(crate) const CLIENTS: [(&str, u32); 2] = [("greedy", 20), ("modest", 2)];

/// Both ask for so many seconds, at these addresses.
pub(crate) fn ask_for(seconds: u32, addresses: &[String]) -> JoinHandle<()> {
    let addresses = addresses.to_vec();
    thread::spawn(move || {
        thread::scope(|clients| {
            for (client, per_second) in CLIENTS {
                let addresses = &addresses;
                clients.spawn(move || ask(client, per_second, seconds, addresses));
            }
        });
    })
}

/// Each request has a thread, because an answer may take a while and the next request does not wait for it.
fn ask(client: &str, per_second: u32, seconds: u32, addresses: &[String]) {
    let began = Instant::now();
    thread::scope(|requests| {
        for (number, address) in (0..seconds * per_second).zip(addresses.iter().cycle()) {
            let due = began + Duration::from_secs(1) * number / per_second;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            requests.spawn(move || {
                // The service reports what became of it.
                let _ = ureq::get(format!("http://{address}/")).header("x-client", client).call();
            });
        }
    });
}
