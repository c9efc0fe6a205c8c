//! The bill of a request to Envoy's rate limit service, for the targets that decode one.

use std::sync::LazyLock;

use tollway::config::Config;
use tollway_core::Policy;
use tollway_core::descriptor::{DescriptorBill, RateLimitRequest};

const LIMITS: &str = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: minute, requests_per_unit: 3}}\n\
    - {key: k, value: 'a*b*', share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}\n";

static POLICY: LazyLock<Policy> =
    LazyLock::new(|| Config::parse(LIMITS, "policy").expect("it is valid").policy);

/// Checks that the bill of a request has no more charges than the request has descriptors.
pub(crate) fn check_bill(request: &RateLimitRequest<'_>) {
    if let Ok(bill) = DescriptorBill::new(&POLICY, request) {
        assert!(bill.charges().len() + bill.refunds().len() <= request.descriptors.len());
        let _ = bill.expression();
    }
}
