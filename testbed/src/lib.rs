//! The other side in tests: real Redis servers, which tests start and stop; ends of ZeroMQ that say what they are told to; and
//! chance.
//!
//! ```
//! use tollway_testbed::RedisServer;
//!
//! let server = RedisServer::start();
//! assert_eq!(server.cli(&["PING"]), "PONG");
//! ```
//!
//! Every server has a free port of the loopback address and a directory of its own, which is gone afterwards. It ends when it is
//! dropped, and also when the process of the test ends in any other way, so that one server can be a `static` that all
//! tests of a program share.
//!
//! What cannot be started, and who does not answer, is a panic that says why: a test has nothing better to do about it.

mod certificate;
mod cluster;
mod port;
mod process;
mod random;
mod scripted_master;
mod sentinel;
mod server;
mod wait;
mod zmq_socket;

pub use cluster::RedisCluster;
pub use random::{Random, compare, seed};
pub use scripted_master::ScriptedMaster;
pub use sentinel::RedisSentinels;
pub use server::RedisServer;
pub use wait::{TEST_TIMEOUT, eventually};
pub use zmq_socket::{ReceivedEvent, ZmqSocket};
