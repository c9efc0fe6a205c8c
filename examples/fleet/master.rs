//! The master: a server with one gate, which could as well be `tollway serve`.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;

use tollway::config::{Gates, SmockronGate};
use tollway::engine::Engine;
use tollway::{Clock, Config};
use tollway_server::{Server, Settings};

use crate::DOMAIN;
use crate::process::end_with_parent;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let gates = Gates { smockron: Some(SmockronGate::at(any)), ..Gates::OFF };
    let settings = Settings {
        gates,
        ..Settings::new(Arc::new(Engine::open(Config::parse(DOMAIN, "domain")?, Clock::monotonic())?))
    };
    let server = Server::start(settings)?;
    if let (Some(accounting), Some(control)) = (server.smockron_addr(), server.smockron_control_addr()) {
        println!("{accounting} {control}");
    }
    end_with_parent();
    loop {
        thread::park();
    }
}
