//! Random histories in which all buckets move from store to store again and again: every answer is the one that a store
//! gives which they never left.

use std::convert::Infallible;
use std::time::Duration;

use tollway::core::Bill;
use tollway::core::algorithm::{QuotaCommand, QuotaOperation, QuotaOutcome, QuotaTtl, TtlUnit};
use tollway::engine::Engine;
use tollway::export::{ExportReader, ImportSettings};
use tollway::reports::Report;
use tollway::store::memory::Memory;
use tollway::{Clock, block_on};
use tollway_testbed::Random;

use crate::stores::{BUCKETS, Kept, Place, at, export_journal, policy, settings};

const POLICY: &str = "
limits:
  Bucket: { burst: 5, count: 5, period: 10s }
  Numbered: { burst: 3, count: 7, period: 10s, number: 9 }
  Log: { algorithm: sliding_log, count: 4, period: 10s }
  Rate: { algorithm: smoothed_rate, count: 6, period: 10s }
  Quota: { algorithm: quota, count: 5, period: 7s }
  Fixed: { algorithm: fixed_window, count: 5, period: 10s }
  Sliding: { algorithm: sliding_window, count: 5, period: 10s }
rules:
  upload: \"Or('user:3/s', 'user:5/10s')\"
domains:
  list: { rules: [{ rate: 1/s, burst: 4 }, { rate: 10/m, burst: 6 }] }
  instants: { logic: gcra, rules: [{ rate: 1/s, burst: 4 }, { rate: 10/m, burst: 6 }] }
";
const LIMITS: [&str; 7] = ["Bucket", "Numbered", "Log", "Rate", "Quota", "Fixed", "Sliding"];
const IDS: u64 = 8;

/// Makes a random request of each kind, and returns all answers as text.
fn random_answers(engine: &Engine, random: &mut Random) -> String {
    let policy = engine.policy();
    let (limit, id) = (random.pick(&LIMITS), format!("id{{{}}}%", random.below(IDS)));
    let charge = policy.charge(limit, id.as_bytes(), 1 + random.below(2)).unwrap();
    let mut answers = match random.below(12) {
        0 => format!("{:?}", block_on(engine.refund_charges(std::slice::from_ref(&charge)))),
        1 => format!("{:?}", block_on(engine.reset_charges(std::slice::from_ref(&charge)))),
        _ => format!("{:?}", block_on(engine.settle(&[Bill::one(&charge)]))),
    };
    let rule = policy.rules()[0].keyed();
    let bill = rule.bill(|_| Ok::<_, Infallible>(Some(&id))).unwrap();
    answers += &format!("{:?}", block_on(engine.settle(&[Bill::rule(&bill)])));
    let operation = match random.below(4) {
        0 => QuotaOperation::Insert {
            left: random.below(9),
            lifetime: QuotaTtl { value: 3, unit: TtlUnit(2) },
            over_live: true,
        },
        1 => QuotaOperation::Purge,
        _ => QuotaOperation::Query,
    };
    let pair = pair(&id);
    let command = QuotaCommand { pair: &pair, operation, ttl_max: tollway::core::Nanos::from_secs(60) };
    let mut outcomes: Vec<QuotaOutcome> = Vec::new();
    block_on(engine.run_quota_commands(&[command], &mut outcomes));
    let domain = &policy.domains()[usize::try_from(random.below(2)).unwrap()];
    let mut allowed_at = Vec::new();
    let report = Report { domain, identifier: id.as_bytes(), at: engine.clock().now() };
    block_on(engine.record_reports(&[report], &mut allowed_at));
    answers + &format!("{outcomes:?} {allowed_at:?}")
}

fn pair(id: &str) -> Vec<u8> {
    let len = u8::try_from(id.len()).unwrap();
    [&[len, 2][..], id.as_bytes(), b"up"].concat()
}

/// Returns the names of all buckets that the histories can have.
fn names() -> Vec<String> {
    let of_id = |number: u64| {
        let id = format!("id%7B{number}%7D%25");
        let limits = LIMITS.map(|limit| if limit == "Numbered" { "9" } else { limit });
        let mut names: Vec<_> = limits.iter().map(|limit| format!("{limit}:{id}")).collect();
        names.extend(["list", "instants"].map(|domain| format!("smockron/{domain}/{id}")));
        names.push(format!("throttr/{id}/up"));
        let policy = policy(POLICY);
        let value = format!("id{{{number}}}%");
        let bill = policy.rules()[0].keyed().bill(|_| Ok::<_, Infallible>(Some(&value))).unwrap();
        names.push(format!("rule/{}", &**bill.identifiers()[0].as_ref().unwrap()));
        names
    };
    (0..IDS).flat_map(of_id).collect()
}

/// Moves everything to another place, by way of a file.
fn moved(place: Place, to: u64, clock: &Clock) -> Place {
    let file = place.export();
    let header = *ExportReader::open(&*file).unwrap().header();
    let target = match to {
        // A journal that the export begins, and a memory of another key if the export has names.
        0 => Place::memory_for(POLICY, clock, &header),
        1 if header.has_names() => Place::memory(POLICY, clock),
        1 => {
            // A server that was stopped: its directory is exported.
            let Place { engine, kept } = place;
            let Kept::Memory(dir) = kept else { unreachable!("exports without names are of memory") };
            drop(engine);
            let file = export_journal(dir.path(), clock);
            let target = Place::memory_for(POLICY, clock, &header);
            let report = target.import(&file, None, ImportSettings::default());
            assert_eq!(report.left_behind(), 0, "{report}");
            return target;
        }
        2 => Place::redis(POLICY, false, clock),
        _ => Place::redis(POLICY, true, clock),
    };
    let dry = target.import(&file, Some(&names()), ImportSettings::default().with_dry_run(true));
    let report = target.import(&file, Some(&names()), ImportSettings::default());
    assert_eq!((report, report.left_behind()), (dry, 0), "{report}");
    // To start an import again changes nothing.
    let again = target.import(&file, Some(&names()), ImportSettings::default());
    assert_eq!(again, report);
    target
}

#[test]
fn buckets_that_move_decide_as_if_they_had_stayed() {
    for seed in 0..6 {
        let clock = Clock::manual(at(1_000_000));
        let oracle = Engine::with(policy(POLICY), Memory::new(BUCKETS), clock.clone());
        let mut place = Place::memory(POLICY, &clock);
        let (mut one, mut other) = (Random::new(seed), Random::new(seed));
        let (mut moves, mut moved_to) = (Random::new(!seed), Vec::new());
        for step in 0..400 {
            clock.advance(Duration::from_millis(moves.below(400)));
            if moves.one_in(25) {
                let to = moves.below(4);
                moved_to.push(to);
                place = moved(place, to, &clock);
            }
            assert_eq!(
                random_answers(&place.engine, &mut one),
                random_answers(&oracle, &mut other),
                "seed {seed}, step {step}, moves {moved_to:?}"
            );
        }
        assert!(moved_to.len() > 5);
    }
}

/// After an export a server goes on with its directory, whose journal is not changed by it.
#[test]
fn an_export_of_a_journal_changes_no_file() {
    let clock = Clock::manual(at(1_000_000));
    let Place { engine, kept } = Place::memory(POLICY, &clock);
    let Kept::Memory(dir) = kept else { unreachable!("it was opened as memory") };
    random_answers(&engine, &mut Random::new(1));
    drop(engine);
    let files = || {
        let mut files: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|file| file.unwrap().path())
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect();
        files.sort();
        files
    };
    let before = files();
    assert!(!export_journal(dir.path(), &clock).is_empty());
    assert!(files() == before);
    let engine = Engine::with_journal(policy(POLICY), BUCKETS, &settings(dir.path()), clock).unwrap();
    assert!(engine.stats().buckets > 0);
}
