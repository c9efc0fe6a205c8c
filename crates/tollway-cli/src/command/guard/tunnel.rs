//! Copies bytes both ways after an upgrade such as WebSocket.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tracing::debug;

/// Passes bytes on until both sides have said all they had to say, or one is gone. `held` lives as long.
pub(super) fn dig<T: Send + 'static>(client: OnUpgrade, upstream: OnUpgrade, held: T) {
    tokio::spawn(async move {
        match tokio::try_join!(client, upstream) {
            Ok((client, upstream)) => {
                let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
                // Whoever hung up in the middle did so on purpose.
                let _ = copy_bidirectional(&mut client, &mut upstream).await;
            }
            Err(error) => debug!(%error, "upgrade failed"),
        }
        drop(held);
    });
}
