//! A stream whose writes fail if the peer stops reading.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::stall_timer::{StallTimeout, StallTimer};

/// A stream with a stall timeout for writes.
pub(crate) struct TimedStream<S> {
    stream: S,
    timer: StallTimer,
    written: Arc<AtomicU64>,
}

impl<S> TimedStream<S> {
    pub(crate) fn new(stream: S, timeout: StallTimeout) -> Self {
        Self { stream, timer: StallTimer::new(timeout), written: Arc::default() }
    }

    /// Returns the number of bytes that were written so far, which is updated.
    pub(crate) fn written(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.written)
    }

    fn check(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match wrote {
            Poll::Ready(Ok(len)) => {
                self.written.fetch_add(len as u64, Ordering::Relaxed);
                wrote
            }
            Poll::Ready(Err(_)) => wrote,
            Poll::Pending => {
                let written = self.written.load(Ordering::Relaxed);
                self.timer.poll_stalled(cx, written).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.check(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Stops the timer: a flush comes when nothing is left to write.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.timer.stop();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::permits::Permits;

    const AFTER: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_if_the_peer_reads_nothing() {
        let (ours, _theirs) = duplex(10);
        let mut ours = TimedStream::new(ours, StallTimeout { after: AFTER, permits: None });
        let began = Instant::now();
        let wrote = ours.write_all(&[0; 11]).await;
        assert_eq!(wrote.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!((AFTER..AFTER + AFTER / 5).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    /// Writes to a peer that reads a byte every 50 seconds.
    async fn write_to_slow_peer(bytes: usize, permits: Option<Arc<Permits>>) -> io::Result<()> {
        let (ours, mut theirs) = duplex(10);
        let mut ours = TimedStream::new(ours, StallTimeout { after: AFTER, permits });
        tokio::spawn(async move {
            for _ in 0..bytes {
                sleep(Duration::from_secs(50)).await;
                theirs.read_u8().await.unwrap();
            }
        });
        ours.write_all(&vec![0; bytes]).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_is_disconnected_when_another_client_needs_the_permit() {
        assert!(write_to_slow_peer(30, None).await.is_ok());
        let permits = Permits::new(1);
        assert!(write_to_slow_peer(30, Some(Arc::clone(&permits))).await.is_ok());
        let _in_use = permits.acquire().await;
        assert!(write_to_slow_peer(30, Some(permits)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nothing_is_written_does_not_count() {
        let (ours, mut theirs) = duplex(10);
        let mut ours = TimedStream::new(ours, StallTimeout { after: AFTER, permits: None });
        tokio::spawn(async move {
            let mut bytes = [0; 10];
            loop {
                sleep(Duration::from_secs(50)).await;
                theirs.read_exact(&mut bytes).await.unwrap();
            }
        });
        for _ in 0..3 {
            ours.write_all(&[0; 20]).await.unwrap();
            ours.flush().await.unwrap();
            sleep(Duration::from_secs(3_600)).await;
        }
    }
}
