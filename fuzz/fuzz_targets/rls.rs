//! Checks that any bytes are a request to Envoy's rate limit service or an error, and that a request finds the same
//! limits however often it is asked.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tollway::config::Config;
use tollway_core::Policy;
use tollway_core::bill::CHARGES_MAX;
use tollway_core::descriptor::{DescriptorBill, ENTRIES_MAX, RateLimitRequest};
use tollway_wire::rls;

const LIMITS: &str = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: minute, requests_per_unit: 3}}\n\
    - {key: k, value: 'a*b*', share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}\n";

static POLICY: LazyLock<Policy> =
    LazyLock::new(|| Config::parse(LIMITS, "policy").expect("it is valid").policy);

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = rls::decode(bytes) {
        assert!(request.descriptors.len() <= CHARGES_MAX);
        assert!(request.descriptors.iter().all(|descriptor| descriptor.entries.len() <= ENTRIES_MAX));
        charges(&request);
    }
    if let Ok(request) = rls::from_json(bytes) {
        charges(&request);
    }
});

fn charges(request: &RateLimitRequest<'_>) {
    if let Ok(bill) = DescriptorBill::new(&POLICY, request) {
        assert!(bill.charges().len() + bill.refunds().len() <= request.descriptors.len());
        let _ = bill.expression();
    }
}
