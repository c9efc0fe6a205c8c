//! Checks that any body is a request to Envoy's rate limit service as JSON or an error, and that the bill of a request
//! is within its bounds.
#![no_main]

mod descriptors;

use libfuzzer_sys::fuzz_target;
use tollway_wire::rls;

use crate::descriptors::check_bill;

fuzz_target!(|body: &[u8]| {
    if let Ok(request) = rls::from_json(body) {
        check_bill(&request);
    }
});
