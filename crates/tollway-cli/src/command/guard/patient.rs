//! A stream whose writes fail if the peer stops reading.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::pace::{Pace, Patience};

pub(super) struct Patient<S> {
    stream: S,
    pace: Pace,
    written: Arc<AtomicU64>,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, patience: Patience) -> Self {
        Self { stream, pace: Pace::new(patience), written: Arc::default() }
    }

    /// How many bytes the other side was sent so far.
    pub(super) fn written(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.written)
    }

    fn attend(
        &mut self,
        context: &mut Context<'_>,
        wrote: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match wrote {
            Poll::Ready(Ok(len)) => {
                self.written.fetch_add(len as u64, Ordering::Relaxed);
                wrote
            }
            Poll::Ready(Err(_)) => wrote,
            Poll::Pending => {
                let written = self.written.load(Ordering::Relaxed);
                self.pace.poll_too_slow(context, written).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.attend(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.attend(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Who flushes has nothing left to write.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pace.rest();
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Instant, sleep};

    use super::super::places::Places;
    use super::*;

    const LASTS: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_cut_off() {
        let (ours, _theirs) = duplex(10);
        let mut ours = Patient::new(ours, Patience { lasts: LASTS, places: None });
        let began = Instant::now();
        let wrote = ours.write_all(&[0; 11]).await;
        assert_eq!(wrote.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!((LASTS..LASTS + LASTS / 5).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    /// Takes a byte every 50 seconds.
    async fn slowly(bytes: usize, places: Option<Arc<Places>>) -> io::Result<()> {
        let (ours, mut theirs) = duplex(10);
        let mut ours = Patient::new(ours, Patience { lasts: LASTS, places });
        tokio::spawn(async move {
            for _ in 0..bytes {
                sleep(Duration::from_secs(50)).await;
                theirs.read_u8().await.unwrap();
            }
        });
        ours.write_all(&vec![0; bytes]).await
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_slow_is_cut_off_when_somebody_else_needs_the_place() {
        assert!(slowly(30, None).await.is_ok());
        let places = Places::new(1);
        assert!(slowly(30, Some(Arc::clone(&places))).await.is_ok());
        let _taken = places.take().await;
        assert!(slowly(30, Some(places)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_in_which_nothing_is_to_be_taken_counts_for_nothing() {
        let (ours, mut theirs) = duplex(10);
        let mut ours = Patient::new(ours, Patience { lasts: LASTS, places: None });
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
