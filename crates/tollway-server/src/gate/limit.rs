//! Limits the connections of one gate, for all clients together and for one address.
//!
//! A full gate closes the connection that has been idle for longest, and accepts the new one. If every connection is in
//! the middle of a request, the new one is refused. A gate with a reserve still accepts a few refused connections, for
//! requests that must always be answered; in a full reserve the new one replaces the oldest, which may be one that
//! never sends its whole request. A gate that trusts some networks only refuses all other clients.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use tokio::task::AbortHandle;
use tollway::config::{MaxConnections, TrustedNetworks};
use tollway_core::LogThrottle;
use tollway_core::network::mask;
use tracing::warn;

use crate::bounds::LOG_PAUSE;
use crate::metrics::Counter;

/// The customers of most providers have a /64 each, so its addresses count as one.
const IPV6_PREFIX: u8 = 64;
/// The number of idle connections that one search finds, to be closed one after another.
const CANDIDATES: usize = 256;
/// The pause after a search that found nothing, as a multiple of its time: it looks at every connection.
const SEARCH_PAUSE: u32 = 20;

/// Counts the connections of one gate on all workers.
pub(crate) struct ConnectionLimit {
    max: MaxConnections,
    /// The number that one address may have, unless it is loopback, if it is not that of `max`.
    share: Option<usize>,
    reserve: usize,
    /// The networks that may connect; everybody may without it.
    networks: Option<TrustedNetworks>,
    throttle: LogThrottle,
    started: Instant,
    table: Mutex<Table>,
    pub(crate) accepted: Counter,
    pub(crate) refused_gate: Counter,
    pub(crate) refused_address: Counter,
    pub(crate) refused_network: Counter,
    pub(crate) evicted: Counter,
}

#[derive(Default)]
struct Table {
    connections: HashMap<u64, Arc<Entry>>,
    by_address: HashMap<IpAddr, usize>,
    /// The connections of the reserve, the oldest first. They are not among the others.
    reserved: BTreeMap<u64, Arc<Entry>>,
    last_id: u64,
    candidates: VecDeque<(u64, u64)>,
    /// The earliest time of the next search.
    next_search: Option<Instant>,
}

struct Entry {
    id: u64,
    address: IpAddr,
    is_reserved: bool,
    /// The time at which it became idle, in nanoseconds, or [`BUSY`] or [`EVICTED`].
    idle_since: AtomicU64,
    task: OnceLock<AbortHandle>,
}

const BUSY: u64 = 0;
const EVICTED: u64 = u64::MAX;

/// The right of one connection to be open, until it is dropped.
pub(super) struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    entry: Arc<Entry>,
}

impl ConnectionLimit {
    pub(crate) fn new(max: &MaxConnections) -> Self {
        let started = Instant::now();
        Self {
            max: *max,
            share: None,
            reserve: 0,
            networks: None,
            throttle: LogThrottle::new(LOG_PAUSE, started),
            started,
            table: Mutex::default(),
            accepted: Counter::default(),
            refused_gate: Counter::default(),
            refused_address: Counter::default(),
            refused_network: Counter::default(),
            evicted: Counter::default(),
        }
    }

    /// Adds a number of connections above the limit, for requests that are always answered.
    pub(crate) fn with_reserve(mut self, reserve: usize) -> Self {
        self.reserve = reserve;
        self
    }

    /// Refuses connections from outside of these networks.
    pub(crate) fn with_networks(mut self, networks: &TrustedNetworks) -> Self {
        self.networks = Some(networks.clone());
        self
    }

    /// Sets how many connections one address may have, unless it is loopback.
    pub(crate) fn with_share(mut self, share: usize) -> Self {
        self.share = Some(share);
        self
    }

    /// Returns the maximum number of connections, with the reserve.
    pub(crate) fn max(&self) -> usize {
        self.max.total + self.reserve
    }

    /// Returns the maximum number of connections, without the reserve.
    pub(crate) fn total(&self) -> usize {
        self.max.total
    }

    /// Returns the number of open connections.
    pub(crate) fn open(&self) -> usize {
        let table = self.lock();
        table.connections.len() + table.reserved.len()
    }

    /// Returns the number of connections that were refused, for any reason.
    pub(crate) fn refused(&self) -> u64 {
        self.refused_gate.get() + self.refused_address.get() + self.refused_network.get()
    }

    /// Returns a permit for a connection from this address, or `None` if it is refused.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionPermit> {
        if self.networks.as_ref().is_some_and(|networks| !networks.contain_address(peer)) {
            self.refuse_network(peer);
            return None;
        }
        let address = counted_address(peer);
        let mut table = self.lock();
        let is_loopback = address.is_loopback();
        let max = self.share.filter(|_| !is_loopback).unwrap_or_else(|| self.max.of_address(is_loopback));
        let refused = if table.by_address.get(&address).is_some_and(|open| *open >= max) {
            Some(&self.refused_address)
        } else if table.connections.len() >= self.max.total && !self.evict_idle(&mut table) {
            Some(&self.refused_gate)
        } else {
            None
        };
        if let Some(refused) = refused {
            refused.one();
            if self.reserve == 0 {
                return None;
            }
            if table.reserved.len() >= self.reserve
                && let Some((_, oldest)) = table.reserved.pop_first()
            {
                oldest.idle_since.swap(EVICTED, Ordering::AcqRel);
                self.end(&oldest);
            }
        }
        self.accepted.one();
        table.last_id += 1;
        let entry = Arc::new(Entry {
            id: table.last_id,
            address,
            is_reserved: refused.is_some(),
            idle_since: AtomicU64::new(BUSY),
            task: OnceLock::new(),
        });
        table.insert(&entry);
        Some(ConnectionPermit { limit: Arc::clone(self), entry })
    }

    #[cold]
    fn refuse_network(&self, peer: IpAddr) {
        self.refused_network.one();
        if let Some(held_back) = self.throttle.allow(Instant::now()) {
            warn!(%peer, held_back, "a connection from outside of trusted_networks was refused");
        }
    }

    /// Closes the connection that has been idle for longest. Returns false if none is idle.
    fn evict_idle(&self, table: &mut Table) -> bool {
        for _ in 0..2 {
            while let Some((seen, id)) = table.candidates.pop_front() {
                let Some(entry) = table.connections.get(&id) else { continue };
                let claim =
                    entry.idle_since.compare_exchange(seen, EVICTED, Ordering::AcqRel, Ordering::Relaxed);
                if claim.is_ok() {
                    let entry = Arc::clone(entry);
                    table.remove(&entry);
                    self.end(&entry);
                    return true;
                }
            }
            if !table.search() {
                return false;
            }
        }
        false
    }

    /// Ends the task of a connection that is evicted. One whose task is not known yet is ended when it is.
    fn end(&self, entry: &Entry) {
        if let Some(task) = entry.task.get() {
            task.abort();
        }
        self.evicted.one();
    }

    /// Returns a time as one that is neither [`BUSY`] nor [`EVICTED`].
    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.started).as_nanos()).unwrap_or(EVICTED - 2) + 1
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn insert(&mut self, entry: &Arc<Entry>) {
        if entry.is_reserved {
            self.reserved.insert(entry.id, Arc::clone(entry));
        } else {
            self.connections.insert(entry.id, Arc::clone(entry));
            *self.by_address.entry(entry.address).or_default() += 1;
        }
    }

    /// Removes a connection, unless an eviction has done so already.
    fn remove(&mut self, entry: &Entry) {
        if entry.is_reserved {
            self.reserved.remove(&entry.id);
        } else if self.connections.remove(&entry.id).is_some()
            && let Some(open) = self.by_address.get_mut(&entry.address)
        {
            *open -= 1;
            if *open == 0 {
                self.by_address.remove(&entry.address);
            }
        }
    }

    /// Finds the connections that have been idle for longest. Returns false if there is none.
    fn search(&mut self) -> bool {
        let started = Instant::now();
        if self.next_search.is_some_and(|next| started < next) {
            return false;
        }
        let entries = self.connections.values();
        let mut idle: Vec<_> =
            entries.map(|entry| (entry.idle_since.load(Ordering::Relaxed), entry.id)).collect();
        idle.retain(|(since, _)| *since != BUSY);
        if idle.len() > CANDIDATES {
            idle.select_nth_unstable(CANDIDATES);
            idle.truncate(CANDIDATES);
        }
        idle.sort_unstable();
        self.next_search = idle.is_empty().then(|| Instant::now() + SEARCH_PAUSE * started.elapsed());
        self.candidates = idle.into();
        !self.candidates.is_empty()
    }
}

impl ConnectionPermit {
    /// Returns whether this connection is one of the reserve, because there was no other place.
    pub(super) fn is_reserved(&self) -> bool {
        self.entry.is_reserved
    }

    /// Returns what makes this connection one that can be closed to make room.
    pub(super) fn evictable(&self) -> Evictable {
        Evictable { entry: Arc::clone(&self.entry), idle_since: self.limit.nanos(Instant::now()) }
    }

    /// Marks the connection as busy: it is not closed to make room. Returns false if that has happened already.
    pub(super) fn set_busy(&self) -> bool {
        let idle_since = &self.entry.idle_since;
        let seen = idle_since.load(Ordering::Relaxed);
        // Only an eviction can come between.
        seen != EVICTED
            && idle_since.compare_exchange(seen, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Marks the connection as idle since `at`.
    pub(super) fn set_idle(&self, at: Instant) {
        self.entry.idle_since.store(self.limit.nanos(at), Ordering::Release);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limit.lock().remove(&self.entry);
    }
}

/// A connection that has a permit, and whose task is not known yet.
pub(super) struct Evictable {
    entry: Arc<Entry>,
    idle_since: u64,
}

impl Evictable {
    /// Lets the connection be closed to make room, by ending its task. One that was evicted meanwhile ends at once.
    pub(super) fn by_ending(self, task: AbortHandle) {
        let Self { entry, idle_since } = self;
        let task = entry.task.get_or_init(|| task);
        if entry.idle_since.compare_exchange(BUSY, idle_since, Ordering::AcqRel, Ordering::Acquire).is_err() {
            task.abort();
        }
    }
}

fn counted_address(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(Ipv6Addr::LOCALHOST) => peer,
        address @ IpAddr::V6(_) => mask(address, IPV6_PREFIX),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limit(total: usize, per_address: Option<usize>) -> Arc<ConnectionLimit> {
        Arc::new(ConnectionLimit::new(&MaxConnections { total, per_address }))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A connection that has been idle since so many nanoseconds after the start.
    fn idle(limit: &Arc<ConnectionLimit>, peer: &str, since: u64) -> ConnectionPermit {
        let permit = limit.admit(address(peer)).unwrap();
        permit.set_idle(limit.started + Duration::from_nanos(since));
        permit
    }

    #[test]
    fn a_full_gate_closes_the_connection_that_has_been_idle_for_longest() {
        let limit = limit(3, None);
        let permits =
            [idle(&limit, "192.0.2.1", 30), idle(&limit, "192.0.2.2", 10), idle(&limit, "192.0.2.3", 20)];
        assert!(permits[1].set_busy());
        let newcomer = limit.admit(address("192.0.2.4")).unwrap();
        assert!(!newcomer.is_reserved());
        assert_eq!(permits.each_ref().map(ConnectionPermit::set_busy), [true, true, false]);
        assert_eq!((limit.open(), limit.evicted.get()), (3, 1));
        assert!(limit.admit(address("192.0.2.5")).is_none(), "nobody is idle");
        assert_eq!(limit.refused_gate.get(), 1);
        drop(permits);
        assert_eq!(limit.open(), 1, "the place of an evicted connection is given back once");
    }

    #[test]
    fn only_trusted_networks_may_connect_if_there_are_any() {
        let networks = ["192.0.2.0/24"].map(|network| network.parse().unwrap()).into_iter().collect();
        let limit = ConnectionLimit::new(&MaxConnections { total: 10, per_address: None }).with_reserve(5);
        let limit = Arc::new(limit.with_networks(&networks));
        let peers = ["192.0.2.1", "::ffff:192.0.2.1", "127.0.0.1", "198.51.100.1", "2001:db8::1"];
        let admitted = peers.map(|peer| limit.admit(address(peer)));
        assert_eq!(admitted.each_ref().map(Option::is_some), [true, true, false, false, false]);
        assert_eq!((limit.refused_network.get(), limit.accepted.get()), (3, 2));
    }

    #[test]
    fn a_share_is_for_each_address_but_loopback() {
        let limit =
            Arc::new(ConnectionLimit::new(&MaxConnections { total: 10, per_address: None }).with_share(2));
        let peers =
            ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "127.0.0.1", "127.0.0.1", "127.0.0.1"];
        let admitted = peers.map(|peer| limit.admit(address(peer)));
        assert_eq!(admitted.each_ref().map(Option::is_some), [true, true, false, true, true, true, true]);
        assert_eq!(limit.refused_address.get(), 1);
    }

    #[test]
    fn one_address_has_a_limit_of_its_own() {
        let limit = limit(10, Some(2));
        let same = ["2001:db8::1", "2001:db8::ffff", "2001:db8:0:0:9::"];
        let permits = same.map(|peer| limit.admit(address(peer)));
        assert_eq!(
            permits.each_ref().map(Option::is_some),
            [true, true, false],
            "a /64 counts as one address"
        );
        let mapped = ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"].map(|peer| limit.admit(address(peer)));
        assert_eq!(mapped.each_ref().map(Option::is_some), [true, true, false]);
        assert_eq!((limit.refused_address.get(), limit.refused_gate.get()), (2, 0));
        drop(permits);
        assert!(limit.admit(address("2001:db8::2")).is_some());
    }

    #[test]
    fn loopback_may_use_every_connection_unless_its_number_is_configured() {
        let limit = limit(10_000, None);
        for (peer, expected) in [("127.0.0.1", 10_000), ("::1", 10_000), ("192.0.2.1", 2_500)] {
            let permits: Vec<_> = (0..10_000).map_while(|_| limit.admit(address(peer))).collect();
            assert_eq!(permits.len(), expected, "{peer}");
        }
    }

    #[test]
    fn a_reserve_is_for_those_that_are_refused_and_the_newest_replaces_the_oldest() {
        let limit =
            Arc::new(ConnectionLimit::new(&MaxConnections { total: 1, per_address: None }).with_reserve(2));
        let _busy = limit.admit(address("192.0.2.1")).unwrap();
        let first = limit.admit(address("192.0.2.2")).unwrap();
        let second = idle(&limit, "192.0.2.2", 10);
        assert!(first.is_reserved() && second.is_reserved());
        let third = limit.admit(address("192.0.2.2")).unwrap();
        assert_eq!([&first, &second, &third].map(ConnectionPermit::set_busy), [false, true, true]);
        assert!(third.is_reserved());
        assert_eq!((limit.open(), limit.evicted.get()), (3, 1), "a busy one is replaced, too");
        drop(first);
        assert_eq!(limit.open(), 3, "its place is given back once");
    }
}
