//! Somebody in between, who takes a reply and hangs up.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Passes everything on between clients and a server, until it is told to steal.
pub(super) struct Thief {
    port: u16,
    steal: Arc<AtomicBool>,
}

impl Thief {
    /// Stands before the server at `port`.
    pub(super) fn start(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let thief = Self { port: listener.local_addr().unwrap().port(), steal: Arc::default() };
        let steal = Arc::clone(&thief.steal);
        thread::spawn(move || {
            for client in listener.incoming() {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
                if let (Ok(client), Ok(server)) = (client, server) {
                    let steal = Arc::clone(&steal);
                    thread::spawn(move || pass(&client, &server, &steal));
                }
            }
        });
        thief
    }

    /// Where clients find the thief.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Takes the next reply, whoever it is for, and closes its connection.
    pub(super) fn steal_next_reply(&self) {
        self.steal.store(true, Ordering::SeqCst);
    }

    /// Has it done so?
    pub(super) fn has_stolen(&self) -> bool {
        !self.steal.load(Ordering::SeqCst)
    }
}

fn pass(client: &TcpStream, server: &TcpStream, steal: &AtomicBool) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut &*client, &mut &*server);
            let _ = server.shutdown(std::net::Shutdown::Both);
        });
        let mut reply = [0; 4096];
        while let Ok(length) = (&*server).read(&mut reply)
            && length > 0
            && !steal.swap(false, Ordering::SeqCst)
            && (&*client).write_all(&reply[..length]).is_ok()
        {}
        let _ = client.shutdown(std::net::Shutdown::Both);
    });
}
