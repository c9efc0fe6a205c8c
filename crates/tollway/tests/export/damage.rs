//! Files that were cut or changed: each is refused, and no bucket behind the damage is used.

use tollway::core::Bill;
use tollway::export::{ExportError, ExportReader};
use tollway::{Clock, block_on};

use crate::stores::{Place, at};

const POLICY: &str = "limits: { A: { burst: 10, count: 10, period: 100s } }";

fn file(in_redis: bool) -> Vec<u8> {
    let clock = Clock::manual(at(1_000_000));
    let place = if in_redis { Place::redis(POLICY, false, &clock) } else { Place::memory(POLICY, &clock) };
    let policy = place.engine.policy();
    for id in 0..20 {
        let id = format!("id-{id}");
        let charge = policy.charge("A", id.as_bytes(), 1).unwrap();
        assert!(block_on(place.engine.settle(&[Bill::one(&charge)]))[0].allowed());
    }
    place.export()
}

/// Reads a file to its end, and returns the number of its buckets.
fn read(file: &[u8]) -> Result<usize, ExportError> {
    let mut reader = ExportReader::open(file)?;
    let mut buckets = 0;
    while let Some(batch) = reader.next_batch()? {
        buckets += batch.len();
    }
    assert_eq!(reader.good_bytes(), file.len() as u64);
    Ok(buckets)
}

#[test]
fn a_file_that_was_cut_anywhere_is_refused() {
    for in_redis in [false, true] {
        let file = file(in_redis);
        assert_eq!(read(&file).unwrap(), 20);
        for len in 0..file.len() {
            let error = read(&file[..len]).unwrap_err();
            match len {
                0..8 => assert!(matches!(error, ExportError::Foreign), "{len}: {error}"),
                _ => assert!(
                    matches!(error, ExportError::Cut { offset } if offset == len as u64),
                    "{len}: {error}"
                ),
            }
        }
    }
}

#[test]
fn a_file_with_any_changed_bit_is_refused() {
    for in_redis in [false, true] {
        let file = file(in_redis);
        for byte in 0..file.len() {
            for bit in 0..8 {
                let mut changed = file.clone();
                changed[byte] ^= 1 << bit;
                assert!(read(&changed).is_err(), "bit {bit} of byte {byte}");
            }
        }
    }
}

#[test]
fn errors_say_what_is_wrong_and_what_to_do() {
    let file = file(false);
    let mut newer = file.clone();
    newer[8] = 9;
    let mut flipped = file.clone();
    flipped[100] ^= 1;
    let longer = [&*file, b"x"].concat();
    for (file, expected) in [
        (&b"limits: {}\n"[..], "it is not an export of buckets".to_owned()),
        (&newer, "it has version 9 of the format, and this program reads version 1".to_owned()),
        (&flipped, "it is damaged at byte 72; copy it again, or export again".to_owned()),
        (&file[..90], "it was cut at byte 90: its end is missing; copy it again, or export again".to_owned()),
        (&longer, format!("it is damaged at byte {}; copy it again, or export again", file.len())),
    ] {
        assert_eq!(read(file).unwrap_err().to_string(), expected);
    }
}
