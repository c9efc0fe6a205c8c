//! Arranges datagrams so that they are sent in as few calls as possible.

use std::cmp::Reverse;
use std::io;
use std::ops::Range;

use quinn_udp::Transmit;

use super::system::{self, TOGETHER_MAX};
use super::{Datagrams, Peer};

const BYTES_AT_ONCE: usize = 4 << 10;
/// The most bytes that one datagram of any kind can have, and so the most that are handed over for GSO.
const BYTES_MAX: usize = 65_000;

/// Collects datagrams that are to be sent.
#[derive(Debug)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    items: Vec<Item>,
    /// The items that were added one after another for one peer.
    runs: Vec<Run>,
    /// The datagrams of one peer in the order of their sizes, where they did not stand in one already.
    sorted: Vec<u8>,
    parcels: Vec<Parcel>,
    sent: usize,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    start: usize,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    peer: Peer,
    /// The index of its first item. Its last is the one before the next run.
    first: usize,
}

/// The datagrams that go to one peer in one call. Each has `size` bytes, and the last may have fewer.
#[derive(Clone, Debug)]
struct Parcel {
    peer: Peer,
    place: Place,
    range: Range<usize>,
    size: usize,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    AsWritten,
    Sorted,
}

impl Outbox {
    /// Creates an empty outbox, with room for what a quiet server sends at once.
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(BYTES_AT_ONCE),
            items: Vec::with_capacity(TOGETHER_MAX),
            runs: Vec::with_capacity(TOGETHER_MAX),
            sorted: Vec::with_capacity(BYTES_AT_ONCE),
            parcels: Vec::with_capacity(TOGETHER_MAX),
            sent: 0,
        }
    }

    /// Adds the datagram that `write` appends. Nothing appended is nothing sent.
    #[inline]
    pub(crate) fn push(&mut self, peer: &Peer, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let len = self.bytes.len() - start;
        // Nobody can be at port 0, and trying would make the kernel's refusal look like one of GSO.
        if len > 0 && peer.address.port() != 0 {
            if self.runs.last().is_none_or(|run| run.peer != *peer) {
                self.runs.push(Run { peer: *peer, first: self.items.len() });
            }
            self.items.push(Item { start, len });
        }
    }

    /// Returns whether there are no datagrams.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Empties it.
    pub(super) fn clear(&mut self) {
        let Self { bytes, items, runs, sorted, parcels, sent } = self;
        bytes.clear();
        items.clear();
        runs.clear();
        sorted.clear();
        parcels.clear();
        *sent = 0;
    }

    /// Makes parcels of up to `segments_max` datagrams each.
    pub(super) fn arrange(&mut self, segments_max: usize) {
        let Self { bytes, items, runs, sorted, parcels, .. } = self;
        let mut end = items.len();
        for Run { peer, first } in runs.iter().rev() {
            let run = &mut items[*first..end];
            end = *first;
            let place = if segments_max == 1 || stands_in_order(run) {
                Place::AsWritten
            } else {
                run.sort_unstable_by_key(|item| Reverse(item.len));
                for item in run.iter_mut() {
                    let start = sorted.len();
                    sorted.extend_from_slice(&bytes[item.start..item.start + item.len]);
                    item.start = start;
                }
                Place::Sorted
            };
            split(*peer, run, place, segments_max, parcels);
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.parcels.len()
    }

    /// Sends on until all is sent or the socket has no room. What cannot be sent at all is passed over and counted.
    pub(super) fn send_some(&mut self, datagrams: &Datagrams, failed: &mut usize) -> io::Result<()> {
        while let Some(parcel) = self.parcels.get(self.sent) {
            let alone =
                self.parcels[self.sent..].iter().take(TOGETHER_MAX).take_while(|parcel| parcel.is_one());
            let (count, result) = match alone.count() {
                0 => (1, self.send_parcel(datagrams, parcel)),
                // Only this call can say which of our addresses a datagram comes from.
                _ if datagrams.any_address => (1, self.send_parcel(datagrams, parcel)),
                count => self.send_singles(datagrams, self.sent..self.sent + count),
            };
            match result {
                Ok(()) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Err(_) if parcel.is_one() => {
                    *failed += 1;
                    self.sent += 1;
                }
                Err(_) => self.unpack(),
            }
        }
        Ok(())
    }

    fn send_parcel(&self, datagrams: &Datagrams, parcel: &Parcel) -> io::Result<()> {
        let transmit = Transmit {
            destination: parcel.peer.address,
            ecn: None,
            contents: self.contents(parcel),
            segment_size: (!parcel.is_one()).then_some(parcel.size),
            src_ip: parcel.peer.local.filter(|_| datagrams.any_address),
        };
        datagrams.state.try_send((&datagrams.socket).into(), &transmit)
    }

    /// Sends parcels of one datagram each, and says how many went out. An error is that of the first.
    ///
    /// Not by `quinn-udp`, which takes an invalid address for a refusal of GSO, and uses none from then on.
    fn send_singles(&self, datagrams: &Datagrams, range: Range<usize>) -> (usize, io::Result<()>) {
        let parcels = self.parcels[range].iter();
        let contents = parcels.map(|parcel| (parcel.peer.address, self.contents(parcel)));
        if contents.len() == 1 {
            system::send_one_by_one(&datagrams.socket, contents)
        } else {
            system::send_together(&datagrams.socket, contents)
        }
    }

    /// Splits the next parcel into single datagrams: if GSO is refused, each may still go by itself.
    #[cold]
    fn unpack(&mut self) {
        let Parcel { peer, place, range, size } = self.parcels[self.sent].clone();
        let end = range.end;
        let single = |start: usize| Parcel { peer, place, range: start..(start + size).min(end), size };
        self.parcels.splice(self.sent..=self.sent, range.step_by(size).map(single));
    }

    fn contents(&self, parcel: &Parcel) -> &[u8] {
        match parcel.place {
            Place::AsWritten => &self.bytes[parcel.range.clone()],
            Place::Sorted => &self.sorted[parcel.range.clone()],
        }
    }
}

impl Parcel {
    /// Returns whether this is one datagram.
    fn is_one(&self) -> bool {
        self.range.len() <= self.size
    }
}

/// Returns whether the items follow each other without a gap, and none is longer than the one before.
fn stands_in_order(run: &[Item]) -> bool {
    run.is_sorted_by(|one, next| next.len <= one.len && next.start == one.start + one.len)
}

/// Puts datagrams of one size, and a shorter one at the end, into one parcel.
fn split(peer: Peer, run: &[Item], place: Place, segments_max: usize, parcels: &mut Vec<Parcel>) {
    let mut rest = run;
    while let [first, ..] = rest {
        let segments = segments_max.min(BYTES_MAX / first.len).max(1);
        let same = rest.iter().take(segments).take_while(|item| item.len == first.len).count();
        let taken = if same < segments && same < rest.len() { same + 1 } else { same };
        // A parcel is contiguous, which only datagrams in order are.
        let taken = if segments_max == 1 { 1 } else { taken };
        let last = &rest[taken - 1];
        let range = first.start..last.start + last.len;
        parcels.push(Parcel { peer, place, range, size: first.len });
        rest = &rest[taken..];
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn peer(port: u16) -> Peer {
        SocketAddr::from(([127, 0, 0, 1], port)).into()
    }

    /// Returns the sizes of the datagrams that each peer gets, as the kernel would split them.
    fn arranged(datagrams: &[(u16, usize)], segments_max: usize) -> Vec<(u16, Vec<usize>)> {
        let mut outbox = Outbox::new();
        for (number, (port, len)) in datagrams.iter().enumerate() {
            outbox.push(&peer(*port), |out| {
                out.extend(std::iter::repeat_n(u8::try_from(number).unwrap_or(0), *len))
            });
        }
        outbox.arrange(segments_max);
        let sizes = |parcel: &Parcel| outbox.contents(parcel).chunks(parcel.size).map(<[u8]>::len).collect();
        for parcel in &outbox.parcels {
            for datagram in outbox.contents(parcel).chunks(parcel.size) {
                assert!(datagram.iter().all(|byte| *byte == datagram[0]), "datagrams were mixed");
            }
        }
        outbox.parcels.iter().map(|parcel| (parcel.peer.address.port(), sizes(parcel))).collect()
    }

    #[test]
    fn datagrams_of_one_peer_go_out_together_by_size() {
        for (datagrams, parcels) in [
            (vec![(1, 5), (1, 5), (1, 5)], vec![(1, vec![5, 5, 5])]),
            (vec![(1, 5), (1, 5), (1, 3)], vec![(1, vec![5, 5, 3])]),
            (vec![(1, 3), (1, 5), (1, 5)], vec![(1, vec![5, 5, 3])]),
            (vec![(1, 3), (1, 5), (1, 4), (1, 5), (1, 4)], vec![(1, vec![5, 5, 4]), (1, vec![4, 3])]),
            (vec![(1, 5), (2, 5), (2, 5), (3, 5)], vec![(3, vec![5]), (2, vec![5, 5]), (1, vec![5])]),
            (vec![(0, 5), (1, 0), (2, 1)], vec![(2, vec![1])]),
        ] {
            assert_eq!(arranged(&datagrams, 64), parcels);
        }
    }

    #[test]
    fn no_parcel_has_more_than_the_kernel_takes() {
        assert_eq!(arranged(&[(1, 2); 5], 2), [(1, vec![2, 2]), (1, vec![2, 2]), (1, vec![2])]);
        assert!(arranged(&[(1, 1000); 70], 64).iter().all(|(_, sizes)| sizes.len() <= 64));
        assert_eq!(arranged(&[(1, 40_000), (1, 40_000)], 64).len(), 2);
    }

    #[test]
    fn without_offload_every_datagram_is_a_parcel() {
        assert_eq!(arranged(&[(1, 3), (1, 5), (1, 5)], 1), [(1, vec![3]), (1, vec![5]), (1, vec![5])]);
    }
}
