//! The bytes inside of a TLS connection, as a stream like that of a socket.
//!
//! `tokio-rustls` has such a stream, but its handshake cannot be made on another thread: its connection cannot be taken
//! out and put back.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::caller::certificate_name;

/// A TLS connection whose handshake is done.
pub(in crate::gate) struct TlsStream {
    /// On the heap: it is large, and moved between threads during the handshake.
    connection: Box<ServerConnection>,
    socket: TcpStream,
}

impl TlsStream {
    pub(super) fn new(connection: Box<ServerConnection>, socket: TcpStream) -> Self {
        Self { connection, socket }
    }

    /// Returns the name that the certificate of the client gives it; `None` if the gate asks for none.
    pub(in crate::gate) fn certificate_name(&self) -> Option<Arc<str>> {
        self.connection.peer_certificates()?.first().map(|certificate| certificate_name(certificate))
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { connection, socket } = self.get_mut();
        loop {
            match connection.reader().read(buffer.initialize_unfilled()) {
                // Zero bytes stand for the close_notify of the peer.
                Ok(read) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            match poll_receive(connection, socket, context) {
                // The end of the socket: the reader tells whether a close_notify came before it.
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
            let processed = connection.process_new_packets();
            // An alert, or the answer to new keys. What does not fit now leaves before the next answer.
            let _ = poll_send_all(connection, socket, context);
            if let Err(error) = processed {
                return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, error)));
            }
        }
    }
}

impl AsyncWrite for TlsStream {
    /// Takes bytes if those before are sent. They may not be sent yet when this returns.
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { connection, socket } = self.get_mut();
        match poll_send_all(connection, socket, context) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
        let taken = connection.writer().write(bytes)?;
        match poll_send_all(connection, socket, context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { connection, socket } = self.get_mut();
        poll_send_all(connection, socket, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { connection, socket } = self.get_mut();
        // Only the first call has an effect.
        connection.send_close_notify();
        match poll_send_all(connection, socket, context) {
            Poll::Ready(Ok(())) => Pin::new(socket).poll_shutdown(context),
            unfinished => unfinished,
        }
    }
}

/// Reads from the socket once, and returns the number of bytes.
pub(super) async fn receive(connection: &mut ServerConnection, socket: &mut TcpStream) -> io::Result<usize> {
    poll_fn(|context| poll_receive(connection, socket, context)).await
}

/// Writes everything that is to be sent.
pub(super) async fn send_all(connection: &mut ServerConnection, socket: &mut TcpStream) -> io::Result<()> {
    poll_fn(|context| poll_send_all(connection, socket, context)).await
}

fn poll_receive(
    connection: &mut ServerConnection,
    socket: &mut TcpStream,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    match connection.read_tls(&mut Blocking { socket, context }) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
        read => Poll::Ready(read),
    }
}

fn poll_send_all(
    connection: &mut ServerConnection,
    socket: &mut TcpStream,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while connection.wants_write() {
        match connection.write_tls(&mut Blocking { socket, context }) {
            Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(()))
}

/// A socket with the calls that rustls makes. What is pending is an error [`ErrorKind::WouldBlock`].
struct Blocking<'a, 'c> {
    socket: &'a mut TcpStream,
    context: &'a mut Context<'c>,
}

impl Blocking<'_, '_> {
    fn ready<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
        match polled {
            Poll::Ready(result) => result,
            Poll::Pending => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Read for Blocking<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        Self::ready(Pin::new(&mut *self.socket).poll_read(self.context, &mut buffer))?;
        Ok(buffer.filled().len())
    }
}

impl Write for Blocking<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::ready(Pin::new(&mut *self.socket).poll_write(self.context, bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // Most answers are one record, and the system call for one slice is cheaper.
        if let [bytes] = slices {
            return self.write(bytes);
        }
        Self::ready(Pin::new(&mut *self.socket).poll_write_vectored(self.context, slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
