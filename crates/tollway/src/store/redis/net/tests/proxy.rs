//! A proxy that drops a reply and closes the connection.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Forwards between clients and a server, until it has to drop a reply.
pub(super) struct Proxy {
    port: u16,
    dropping: Arc<AtomicBool>,
}

impl Proxy {
    /// Starts a proxy of the server at `port`.
    pub(super) fn start(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), dropping: Arc::default() };
        let dropping = Arc::clone(&proxy.dropping);
        thread::spawn(move || {
            for client in listener.incoming() {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
                if let (Ok(client), Ok(server)) = (client, server) {
                    let dropping = Arc::clone(&dropping);
                    thread::spawn(move || pass(&client, &server, &dropping));
                }
            }
        });
        proxy
    }

    /// Returns the port for clients.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Drops the next reply, and closes its connection.
    pub(super) fn drop_next_reply(&self) {
        self.dropping.store(true, Ordering::SeqCst);
    }

    /// Returns true if a reply was dropped since.
    pub(super) fn has_dropped(&self) -> bool {
        !self.dropping.load(Ordering::SeqCst)
    }
}

fn pass(client: &TcpStream, server: &TcpStream, dropping: &AtomicBool) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut &*client, &mut &*server);
            let _ = server.shutdown(std::net::Shutdown::Both);
        });
        let mut reply = [0; 4096];
        while let Ok(length) = (&*server).read(&mut reply)
            && length > 0
            && !dropping.swap(false, Ordering::SeqCst)
            && (&*client).write_all(&reply[..length]).is_ok()
        {}
        let _ = client.shutdown(std::net::Shutdown::Both);
    });
}
