//! Ports that nobody listens at.

use std::net::{Ipv4Addr, TcpListener};

/// As many free ports as are asked for, all different.
///
/// They are free when this returns. Somebody else may take one before a server does, so whoever starts one tries again.
pub(crate) fn free<const COUNT: usize>() -> [u16; COUNT] {
    // BucketState together until all are found: a port that is let go at once may be given out again.
    let held = [(); COUNT].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    held.map(|listener| listener.local_addr().expect("a bound listener has an address").port())
}
