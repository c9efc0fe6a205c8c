//! Checks that any bytes are a file of a journal up to a good block, or none, and that a summary never claims more
//! bytes than there are. Most inputs get a valid header, because nothing is read behind a wrong one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway::journal::FileSummary;

/// A log with a valid header, and blocks of buckets and delays behind it.
const VALID: &[u8] = include_bytes!("../corpus/journal/seed-log");
const HEADER_LEN: usize = 104;

fuzz_target!(|input: (bool, &[u8])| {
    let (with_header, bytes) = input;
    let file = if with_header { [&VALID[..HEADER_LEN], bytes].concat() } else { bytes.to_vec() };
    if let Ok(summary) = FileSummary::of(&file) {
        assert!(summary.good_bytes <= file.len() as u64);
        assert!(summary.buckets + summary.delays <= file.len() as u64);
        assert!(summary.good_bytes >= HEADER_LEN as u64);
    }
});
