//! Support for tests: starts real Redis servers, scripts ZeroMQ peers, and generates random histories.
//!
//! ```
//! use tollway_testbed::RedisServer;
//!
//! let server = RedisServer::start();
//! assert_eq!(server.cli(&["PING"]), "PONG");
//! ```
//!
//! Every server has a free port on loopback and a temporary directory of its own. It ends when it is dropped, and also
//! when the test process dies in any other way. So one server can be a `static` that all tests of a program share.
//!
//! Every failure is a panic with a message: a test has nothing better to do about it.

mod certificate;
mod cluster;
mod port;
mod process;
mod random_histories;
mod scripted_master;
mod sentinel;
mod server;
mod wait;
mod zmq_socket;

pub use certificate::{CertificateFiles, Certificates};
pub use cluster::RedisCluster;
pub use random_histories::{Random, compare, seed};
pub use scripted_master::ScriptedMaster;
pub use sentinel::RedisSentinels;
pub use server::RedisServer;
pub use wait::{TEST_TIMEOUT, eventually};
pub use zmq_socket::{ReceivedEvent, ZmqSocket};
