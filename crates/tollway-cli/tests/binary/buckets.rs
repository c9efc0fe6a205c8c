//! Moves the buckets of real servers, by `tollway buckets`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tollway_testbed::{RedisCluster, RedisServer};

use crate::journal::Http;
use crate::run::{Ran, file, run, tollway};
use crate::serving::Serving;

/// Nothing comes back while a test runs, so what is left is known.
const POLICY: &str = "
limits:
  Tokens: { burst: 30, count: 1, period: 24h }
  Quota: { algorithm: quota, count: 30, period: 24h }
  Log: { algorithm: sliding_log, count: 30, period: 24h }
";
const LIMITS: [&str; 3] = ["Tokens", "Quota", "Log"];

fn start(config: &str, store: &[&str]) -> Serving {
    Serving::start(&[&["--config", config, "--http", "127.0.0.1:0"], store].concat(), &[])
}

fn spend(serving: &Serving, id: &str, cost: u64) {
    let mut http = Http::connect(&serving.addr).unwrap();
    for limit in LIMITS {
        assert_eq!(http.spend(limit, id, cost).unwrap().0, 200, "{limit}:{id}");
    }
}

/// Returns what is left of each limit.
fn left(serving: &Serving, id: &str) -> [u64; 3] {
    let mut http = Http::connect(&serving.addr).unwrap();
    LIMITS.map(|limit| {
        let (_, body) = http.spend(limit, id, 0).unwrap();
        let digits = body.split("\"remaining\":").nth(1).unwrap();
        digits.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    })
}

fn admin(serving: &Serving) -> String {
    format!("http://{}", serving.admin)
}

fn buckets(arguments: &[&str]) -> Ran {
    run(&[&["buckets"], arguments].concat())
}

/// Runs a move that must leave nothing behind.
fn done(arguments: &[&str]) -> Ran {
    let ran = buckets(arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
    ran
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_running_servers_buckets_go_to_a_directory_and_on_to_another_server() {
    let (config, dir) = (file("buckets.yaml", POLICY), tempfile::tempdir().unwrap());
    let (old, new, export) = (path(dir.path(), "old"), path(dir.path(), "new"), path(dir.path(), "export"));
    let serving = start(&config, &["--data", &old]);
    (1..=20).for_each(|id| spend(&serving, &format!("id-{id}"), id));
    done(&["export", &admin(&serving), "--output", &export]);
    assert_eq!(fs::metadata(&export).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(done(&["verify", &export]).stdout.contains("60 buckets with hashes of their ids"));
    let dry = done(&["import", &export, &new, "--config", &config, "--dry-run"]);
    assert_eq!(dry.stdout, "dry run, nothing was changed: 60 buckets imported, 0 had expired\n");
    assert!(!Path::new(&new).exists());
    let ran = done(&["import", &export, &new, "--config", &config]);
    assert_eq!(ran.stdout, "60 buckets imported, 0 had expired\n");
    let other = start(&config, &["--data", &new]);
    for id in 1..=20 {
        assert_eq!(left(&other, &format!("id-{id}")), [30 - id; 3], "{id}");
    }
    // What the old server has decided since then follows while the new one runs: both have the same key.
    spend(&serving, "id-1", 4);
    spend(&serving, "late", 9);
    spend(&other, "id-2", 20);
    fs::remove_file(&export).unwrap();
    done(&["export", &admin(&serving), "--output", &export]);
    done(&["import", &export, &admin(&other)]);
    assert_eq!(["id-1", "id-2", "late", "nobody"].map(|id| left(&other, id)[0]), [25, 8, 21, 30]);
    // A server with another key cannot find them, and says what to do.
    let foreign = start(&config, &["--data", &path(dir.path(), "foreign")]);
    let ran = buckets(&["import", &export, &admin(&foreign)]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("import it into an empty journal directory"), "{}", ran.stderr);
}

#[test]
fn buckets_of_redis_go_anywhere_and_come_back_with_a_list_of_ids() {
    let (config, dir) = (file("buckets.yaml", POLICY), tempfile::tempdir().unwrap());
    let (redis, cluster) = (RedisServer::start(), RedisCluster::start());
    let from = start(&config, &["--store", &format!("{}?deadline=5s", redis.url())]);
    (1..=20).for_each(|id| spend(&from, &format!("id-{id}"), id));
    // Into a Cluster, by a pipe.
    let mut export = tollway(&["buckets", "export", &redis.url()]).stdout(Stdio::piped()).spawn().unwrap();
    let mut import = tollway(&["buckets", "import", "-", &cluster.url()]);
    let ran = import.stdin(export.stdout.take().unwrap()).output().unwrap();
    assert!(export.wait().unwrap().success());
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "60 buckets imported, 0 had expired\n");
    let in_cluster = start(&config, &["--store", &format!("{}?deadline=5s", cluster.url())]);
    let left_of =
        |serving: &Serving| (1..=20).map(|id| left(serving, &format!("id-{id}"))).collect::<Vec<_>>();
    let expected: Vec<_> = (1..=20).map(|id| [30 - id; 3]).collect();
    assert_eq!(left_of(&in_cluster), expected);
    // Into the memory of a running server.
    let file_of = |name| path(dir.path(), name);
    let memory = start(&config, &["--data", &file_of("data")]);
    done(&["export", &cluster.url(), "--output", &file_of("cluster")]);
    done(&["import", &file_of("cluster"), &admin(&memory)]);
    assert_eq!(left_of(&memory), expected);
    // And back into Redis: memory has only hashes, so the ids must be known.
    spend(&memory, "id-1", 2);
    spend(&memory, "forgotten", 2);
    done(&["export", &admin(&memory), "--output", &file_of("memory")]);
    let refused = buckets(&["import", &file_of("memory"), &redis.url()]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("Redis finds a bucket by its id"), "{}", refused.stderr);
    let ids: String = (1..=20).flat_map(|id| LIMITS.map(|limit| format!("{limit}:id-{id}\n"))).collect();
    let ids = file("ids.txt", ids);
    let ran = buckets(&["import", &file_of("memory"), &redis.url(), "--ids", &ids, "--config", &config]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("60 buckets imported") && ran.stdout.contains("3 buckets left behind"),
        "{}",
        ran.stdout
    );
    assert_eq!(left(&from, "id-1"), [27; 3]);
    assert_eq!(left(&from, "forgotten"), [30; 3]);
}

#[test]
fn what_cannot_be_moved_is_refused_with_a_reason() {
    let (config, dir) = (file("buckets.yaml", POLICY), tempfile::tempdir().unwrap());
    let (data, export) = (path(dir.path(), "data"), path(dir.path(), "export"));
    let serving = start(&config, &["--data", &data]);
    spend(&serving, "a", 3);
    done(&["export", &admin(&serving), "--output", &export]);
    let bytes = fs::read(&export).unwrap();
    let cut = file("cut.export", &bytes[..bytes.len() - 30]);
    let mut changed = bytes.clone();
    changed[90] ^= 4;
    let changed = file("changed.export", changed);
    let new = path(dir.path(), "new");
    let ids = file("ids.txt", "Nobody:a\n");
    for (arguments, expected) in [
        (&["import", &cut, &new][..], "its end is missing; copy it again, or export again"),
        (&["import", &changed, &new], "it is damaged at byte 72; copy it again, or export again"),
        (&["verify", &config], "it is not an export of buckets"),
        (&["export", &data], "the directory is in use by another process"),
        (&["export", "nowhere"], "nowhere is no directory"),
        (&["export", &admin(&serving), "--output", &export], "exists already; choose another file"),
        (&["import", &export, &new, "--ids", &ids, "--config", &config], "has no such limit or domain"),
    ] {
        let ran = buckets(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.stdout);
        assert!(ran.stderr.contains(expected), "{arguments:?}: {}", ran.stderr);
        assert!(!Path::new(&new).exists(), "{arguments:?}");
    }
}

/// An import that is killed is started again, and ends in the same state.
#[test]
fn an_import_that_was_killed_is_started_again() {
    let (config, dir) = (file("buckets.yaml", POLICY), tempfile::tempdir().unwrap());
    let (data, new, export) = (path(dir.path(), "data"), path(dir.path(), "new"), path(dir.path(), "export"));
    let serving = start(&config, &["--data", &data]);
    (1..=20).for_each(|id| spend(&serving, &format!("id-{id}"), id));
    done(&["export", &admin(&serving), "--output", &export]);
    // Nothing more comes from standard input than the first half, and the process is killed while it waits.
    let mut import: Command = tollway(&["buckets", "import", "-", &new, "--config", &config]);
    let mut import = import.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let bytes = fs::read(&export).unwrap();
    let mut stdin = import.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, &bytes[..bytes.len() / 2]).unwrap();
    import.kill().unwrap();
    import.wait().unwrap();
    drop(stdin);
    done(&["import", &export, &new, "--config", &config]);
    let other = start(&config, &["--data", &new]);
    for id in 1..=20 {
        assert_eq!(left(&other, &format!("id-{id}")), [30 - id; 3], "{id}");
    }
}
