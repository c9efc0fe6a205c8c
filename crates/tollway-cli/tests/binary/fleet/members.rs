//! A master, four gatekeepers, and the service behind them, which keeps a list of whoever came.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::Request;
use hyper::body::Incoming;
use tokio::task::spawn_blocking;
use tollway_testbed::TEST_TIMEOUT;

use super::overheard::Overheard;
use crate::guard_process::GuardProcess;
use crate::run::file;
use crate::serving::Serving;
use crate::upstream::{Upstream, answer, full};

pub(crate) const GUARDS: usize = 4;

/// The limit of each client, which is a rate per second after a burst. A request is due every 40 ms, a whole number of
/// the milliseconds that messages speak of.
pub(crate) const RATE: u32 = 25;
pub(crate) const BURST: u32 = 20;

/// The longest delay; a request that would wait longer is rejected. It is so short that a run of a few seconds is
/// mostly the steady state.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(1);

/// One request, as the service saw it.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) client: String,
    pub(crate) guard: usize,
    pub(crate) number: u32,
    pub(crate) at: Instant,
}

pub(crate) struct Fleet {
    /// Gone before the master, so that they do not miss it.
    pub(crate) guards: Vec<GuardProcess>,
    config: String,
    master: Option<Serving>,
    addresses: [String; 2],
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    pub(crate) overheard: Overheard,
}

impl Fleet {
    /// One whose master reckons by this logic and remembers in this store.
    pub(crate) async fn start(logic: &str, store: &str) -> Self {
        let config = configuration(logic, store);
        let (master, addresses) = master(&config, &["127.0.0.1:0", "127.0.0.1:0"].map(str::to_owned));
        let arrivals = Arc::<Mutex<Vec<Arrival>>>::default();
        let list = Arc::clone(&arrivals);
        let upstream = Upstream::http2(move |request| {
            // Here and not in the future, whose turn may come later than that of another.
            list.lock().unwrap().push(arrival(&request));
            async { answer("served") }
        });
        // Over one connection, in which nobody overtakes.
        let upstream = upstream.await.url().replace("http://", "h2c://");
        let max_delay = format!("{}s", MAX_DELAY.as_secs());
        let arguments = ["--identify", "header:x-client", "--max-delay", &max_delay, "--workers", "1"];
        let guards: Vec<_> =
            (0..GUARDS).map(|_| GuardProcess::of(&upstream, &addresses, &arguments)).collect();
        let overheard = Overheard::default();
        overheard.listen(&addresses[1]);
        let fleet = Self { guards, config, master: Some(master), addresses, arrivals, overheard };
        fleet.gather().await;
        fleet
    }

    /// Waits until all gatekeepers have found the master, and the service: requests that come while a connection to it
    /// is being made each make one of their own, and overtake each other.
    async fn gather(&self) {
        for guard in &self.guards {
            guard.shows("master_connected", |value| value >= 1).await;
            let request = Request::get("http://service/").header("x-client", "usher").header("x-guard", 0);
            guard.ask(request.header("x-number", 0).body(full("")).unwrap()).await;
        }
    }

    /// Kills the master, without a word to anybody.
    pub(crate) fn kill_master(&mut self) {
        let master = self.master.take().unwrap();
        master.signal("KILL");
        assert_eq!(master.wait().0, None);
    }

    /// Starts it again, where it was.
    pub(crate) async fn restart_master(&mut self) {
        let (config, addresses) = (self.config.clone(), self.addresses.clone());
        // Beside those who send: they are on a schedule.
        let (master, addresses) = spawn_blocking(move || master(&config, &addresses)).await.unwrap();
        assert_eq!(addresses, self.addresses);
        self.master = Some(master);
        self.overheard.listen(&self.addresses[1]);
    }

    /// Returns the ports of the master: for accounting and for control.
    pub(crate) fn ports(&self) -> [u16; 2] {
        self.addresses.each_ref().map(|address| address.rsplit(':').next().unwrap().parse().unwrap())
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().unwrap().clone()
    }

    /// Waits until so many requests have this status, over all gatekeepers.
    pub(crate) async fn reaches(&self, status: &str, wanted: u64) {
        let started = Instant::now();
        while self.count(status).await < wanted {
            assert!(started.elapsed() < TEST_TIMEOUT, "there are not {wanted} requests that were {status}");
        }
    }

    /// Counts the requests with this status, over all gatekeepers.
    pub(crate) async fn count(&self, status: &str) -> u64 {
        let metric = format!("requests_total{{status=\"{status}\"}}");
        let mut sum = 0;
        for guard in &self.guards {
            sum += guard.metric(&metric).await;
        }
        sum
    }
}

fn configuration(logic: &str, store: &str) -> String {
    // It has a limit as well because it then announces how to try that, which is what a start waits for.
    let text = format!(
        "store: {store}\n\
         domains: {{ api: {{ logic: {logic}, rules: [{{ rate: {RATE}/s, burst: {BURST} }}] }} }}\n\
         limits: {{ demo: {{ burst: 5, count: 5, period: 10s }} }}\n"
    );
    file("fleet.yaml", text)
}

/// Starts one at these addresses, for accounting and for control, and says where it is.
fn master(config: &str, [accounting, control]: &[String; 2]) -> (Serving, [String; 2]) {
    let file = format!("{config}.gates.yaml");
    let gates = format!(
        "gates: {{ http: 127.0.0.1:0, smockron: {{ accounting: {accounting}, control: {control} }} }}\n"
    );
    fs::write(&file, fs::read_to_string(config).unwrap() + &gates).unwrap();
    let serving =
        Serving::start(&["--config", &file, "--http", "127.0.0.1:0"], &[("TOLLWAY_SMOCKRON", accounting)]);
    let announced = serving.printed.split_once("zmq ").unwrap().1.lines().next().unwrap();
    let (accounting, control) = announced.split_once(", control ").unwrap();
    let addresses = [accounting, control].map(|address| address.trim_start_matches("tcp://").to_owned());
    (serving, addresses)
}

fn arrival(request: &Request<Incoming>) -> Arrival {
    let header = |name: &str| request.headers()[name].to_str().unwrap();
    Arrival {
        client: header("x-client").to_owned(),
        guard: header("x-guard").parse().unwrap(),
        number: header("x-number").parse().unwrap(),
        at: Instant::now(),
    }
}
