//! Measures Tollway and its peers alternately in one run. Ratios of neighbouring turns are meaningful on a noisy
//! machine, absolute numbers are not.

pub mod connections;
pub mod generator;
pub mod http_client;
pub mod id_stream;
pub mod load_contest;
pub mod options;
pub mod page;
pub mod rounds;
pub mod servers;
pub mod wrk;
