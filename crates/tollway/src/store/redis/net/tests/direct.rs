//! Tests direct calls of blocking callers.

use tollway_testbed::TEST_TIMEOUT;

use super::*;

fn call_directly(net: &Net, call: Call) -> Reply {
    crate::block_on(async { net.send_blocking(vec![call]).await.remove(0) })
}

/// Returns the number of our connections to the server.
fn connections(server: &RedisServer) -> usize {
    server.cli(&["CLIENT", "LIST"]).matches("name=tollway").count()
}

#[test]
fn who_sleeps_anyway_has_a_connection_of_its_own() {
    let server = RedisServer::start();
    let net = patient(&server);
    assert_eq!(call_directly(&net, plain(&["INCR", "n"])), Ok(Value::Int(1)), "it waits for the usual one");
    for expected in 2..=50 {
        assert_eq!(call_directly(&net, plain(&["INCR", "n"])), Ok(Value::Int(expected)));
    }
    assert_eq!(connections(&server), 2);
    assert_eq!(net.health().calls, 50);
}

#[test]
fn what_was_not_executed_goes_the_usual_way_and_what_is_refused_does_not() {
    let server = RedisServer::start();
    let net = patient(&server);
    call_directly(&net, plain(&["PING"])).unwrap();
    for expected in 1..=3 {
        assert_eq!(call_directly(&net, count("n")), Ok(Value::Int(expected)));
        server.cli(&["SCRIPT", "FLUSH"]);
    }
    server.cli(&["SET", "text", "a"]);
    let refused = call_directly(&net, plain(&["INCR", "text"]));
    assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
    assert_eq!(net.health().refusals, 1);
}

/// Tests that a server that comes back is asked again, and that each answered call was executed once.
#[test]
fn a_server_that_was_away_is_found_again() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let net = patient(&server);
    let mut before = 0;
    for _ in 0..3 {
        let given_up = Instant::now() + TEST_TIMEOUT;
        let mut lost = 0;
        let count = loop {
            match call_directly(&net, plain(&["INCR", "n"])) {
                Ok(Value::Int(count)) => break count,
                other => assert!(Instant::now() < given_up, "{other:?}"),
            }
            lost += 1;
        };
        assert!((before + 1..=before + 1 + lost).contains(&count), "{before}, {lost} lost, {count}");
        assert_eq!(call_directly(&net, plain(&["INCR", "n"])), Ok(Value::Int(count + 1)));
        before = count + 1;
        server.kill();
        server.restart();
    }
}

#[test]
fn nobody_waits_longer_than_the_deadline_for_a_server_that_is_frozen() {
    let server = RedisServer::start();
    let deadline = Duration::from_millis(15);
    let net = Net::start(&RedisUrl { deadline, ..url(&server) }).unwrap();
    let answered = (0..1_000).any(|_| call_directly(&net, plain(&["PING"])).is_ok());
    assert!(answered && call_directly(&net, plain(&["PING"])).is_ok());
    server.freeze();
    let error = call_directly(&net, plain(&["PING"])).unwrap_err();
    assert!(matches!(error, StoreError::TimedOut { waited, .. } if waited == deadline), "{error}");
    server.thaw();
}
