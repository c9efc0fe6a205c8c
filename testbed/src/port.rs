//! Finds free ports on loopback.

use std::net::{Ipv4Addr, TcpListener};

/// Returns free ports that are all different.
///
/// Another process may take one before the server binds it, so the caller must retry with new ports.
pub(crate) fn free<const COUNT: usize>() -> [u16; COUNT] {
    // All listeners are kept open until the last port is found: a port that is released may be given out again.
    let held = [(); COUNT].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    held.map(|listener| listener.local_addr().expect("a bound listener has an address").port())
}
