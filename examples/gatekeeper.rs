//! Puts a gatekeeper in front of work of your own.
//!
//! ```console
//! $ cargo run -p tollway-client --example gatekeeper -- 127.0.0.1:10004 default alice
//! ```
//!
//! Asks for admission twenty times, as if one client sent requests as fast as it may: its burst passes, then it waits.
//! Without a master, every request passes.

use std::env;
use std::time::Duration;

use tollway_client::gatekeeper::{Admission, Gatekeeper, GatekeeperError};

fn main() -> Result<(), GatekeeperError> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let argument = |index: usize, default| arguments.get(index).map_or(default, String::as_str);
    let gatekeeper = Gatekeeper::builder(argument(0, "127.0.0.1:10004"), argument(1, "default"))
        .max_delay(Duration::from_secs(2))
        .build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    for admission in runtime.block_on(ask(&gatekeeper, argument(2, "alice"), 20)) {
        println!("{}", said(admission));
    }
    println!("{:?}", gatekeeper.stats());
    Ok(())
}

async fn ask(gatekeeper: &Gatekeeper, identifier: &str, times: usize) -> Vec<Admission> {
    let mut admissions = Vec::new();
    for _ in 0..times {
        admissions.push(gatekeeper.admit(identifier).await);
    }
    admissions
}

/// Returns the words for what a server does with the request.
fn said(admission: Admission) -> String {
    match admission {
        Admission::Passed => "served at once".to_owned(),
        Admission::Delayed { by } => format!("served after {by:.1?}"),
        Admission::Rejected { retry_after, .. } => {
            format!("503 Service Unavailable, Retry-After: {}", retry_after.as_secs() + 1)
        }
        _ => "served".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[tokio::test]
    async fn without_a_master_everything_passes() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let gatekeeper =
            Gatekeeper::builder(&nobody.to_string(), "default").control_address(&nobody.to_string());
        let admissions = ask(&gatekeeper.build().unwrap(), "alice", 20).await;
        assert_eq!(admissions, [Admission::Passed; 20]);
    }

    #[test]
    fn each_admission_has_its_answer() {
        assert_eq!(said(Admission::Delayed { by: Duration::from_millis(950) }), "served after 950.0ms");
        let rejected = Admission::Rejected { until: UNIX_EPOCH, retry_after: Duration::from_millis(2_100) };
        assert_eq!(said(rejected), "503 Service Unavailable, Retry-After: 3");
    }
}
