//! Holds the calls for datagrams that only Linux has, and the plain ones that replace them on other systems.
//!
//! | | Linux | other systems |
//! |---|---|---|
//! | several datagrams to different peers | `sendmmsg`, up to [`TOGETHER_MAX`] in one call | `sendto`, one call each |
//! | receive buffer above the system's limit | `SO_RCVBUFFORCE`, where the process may | not possible |
//!
//! Batches that are received together (`recvmmsg`, GRO) and segments for one peer (GSO) are the same choice inside
//! `quinn-udp`: its batch is one datagram where the system has no better call.

use std::io;
#[cfg(target_os = "linux")]
use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::os::fd::AsFd;

#[cfg(target_os = "linux")]
use arrayvec::ArrayVec;
#[cfg(target_os = "linux")]
use rustix::net::{MMsgHdr, SendAncillaryBuffer, sendmmsg};
use rustix::net::{SendFlags, SocketAddrAny, sockopt};

/// The most datagrams to different peers that go out in one call.
pub(super) const TOGETHER_MAX: usize = 64;
/// The room in bytes that the kernel is asked for: some thousands of small datagrams, while the server is busy.
const SOCKET_BUFFER: usize = 4 << 20;

/// Enlarges the socket's buffers as far as the system allows: a burst that does not fit is lost.
pub(super) fn enlarge_buffers(socket: &StdSocket) {
    let fd = socket.as_fd();
    #[cfg(target_os = "linux")]
    let is_forced = sockopt::set_socket_recv_buffer_size_force(fd, SOCKET_BUFFER).is_ok();
    #[cfg(not(target_os = "linux"))]
    let is_forced = false;
    if !is_forced {
        let _ = sockopt::set_socket_recv_buffer_size(fd, SOCKET_BUFFER);
    }
    let _ = sockopt::set_socket_send_buffer_size(fd, SOCKET_BUFFER);
}

/// Sends up to [`TOGETHER_MAX`] datagrams in one call, and returns how many went out. An error is that of the first.
#[cfg(target_os = "linux")]
pub(super) fn send_together<'a>(
    socket: impl AsFd,
    datagrams: impl Iterator<Item = (SocketAddr, &'a [u8])>,
) -> (usize, io::Result<()>) {
    // Filled where they are: a list that is collected is moved with all its room, thousands of bytes.
    let mut addresses = ArrayVec::<SocketAddrAny, TOGETHER_MAX>::new();
    let mut contents = ArrayVec::<[IoSlice<'_>; 1], TOGETHER_MAX>::new();
    let mut controls = ArrayVec::<SendAncillaryBuffer<'_, '_, '_>, TOGETHER_MAX>::new();
    for (address, bytes) in datagrams {
        addresses.push(address.into());
        contents.push([IoSlice::new(bytes)]);
        controls.push(SendAncillaryBuffer::default());
    }
    let mut messages = ArrayVec::<MMsgHdr<'_>, TOGETHER_MAX>::new();
    for ((address, contents), control) in addresses.iter().zip(&contents).zip(&mut controls) {
        messages.push(MMsgHdr::new_with_addr(address, contents, control));
    }
    match sendmmsg(socket, &mut messages, SendFlags::empty()) {
        Ok(count) => (count, Ok(())),
        Err(error) => (0, Err(error.into())),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) use self::send_one_by_one as send_together;

/// Sends datagrams until one fails, and returns how many went out. An error is that of the first.
pub(super) fn send_one_by_one<'a>(
    socket: impl AsFd,
    datagrams: impl Iterator<Item = (SocketAddr, &'a [u8])>,
) -> (usize, io::Result<()>) {
    let mut sent = 0;
    for (address, bytes) in datagrams {
        match rustix::net::sendto(&socket, bytes, SendFlags::empty(), &SocketAddrAny::from(address)) {
            Ok(_) => sent += 1,
            // The next call begins with this datagram, and its error is the first then.
            Err(_) if sent > 0 => break,
            Err(error) => return (0, Err(error.into())),
        }
    }
    (sent, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_send_delivers_up_to_the_datagram_that_fails() -> io::Result<()> {
        let (from, to) = (StdSocket::bind("127.0.0.1:0")?, StdSocket::bind("127.0.0.1:0")?);
        let (good, too_long) = (to.local_addr()?, vec![0; 1 << 16]);
        let datagrams: [(SocketAddr, &[u8]); 4] =
            [(good, b"a"), (good, b"bc"), (good, &too_long), (good, b"d")];
        let by_each_way = [
            send_together(&from, datagrams.iter().copied()),
            send_one_by_one(&from, datagrams.iter().copied()),
        ];
        for (sent, result) in by_each_way {
            assert!(sent == 2 && result.is_ok());
            for expected in [&b"a"[..], b"bc"] {
                let mut buffer = [0; 8];
                let len = to.recv(&mut buffer)?;
                assert_eq!(&buffer[..len], expected);
            }
        }
        for (sent, result) in [
            send_together(&from, datagrams[2..].iter().copied()),
            send_one_by_one(&from, datagrams[2..].iter().copied()),
        ] {
            assert!(sent == 0 && result.is_err());
        }
        Ok(())
    }
}
