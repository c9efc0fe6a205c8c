//! Checks that any bytes are an export up to a good block, or none, and that reading them never panics. Most inputs get
//! a valid header, because nothing is read behind a wrong one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway::export::ExportReader;

/// An export with some buckets.
const VALID: &[u8] = include_bytes!("../corpus/export/seed-named");
const HEADER_LEN: usize = 72;

fuzz_target!(|input: (bool, &[u8])| {
    let (with_header, bytes) = input;
    let file = if with_header { [&VALID[..HEADER_LEN], bytes].concat() } else { bytes.to_vec() };
    let Ok(mut reader) = ExportReader::open(&*file) else { return };
    while let Ok(Some(batch)) = reader.next_batch() {
        assert!(batch.len() <= file.len());
    }
    assert!(reader.good_bytes() <= file.len() as u64);
});
