//! Shows a server live in a terminal: what `GET /v1/live` sends, once a second.
//!
//! ```text
//! Feed (a thread)          ──>  App: LiveState + View  ──>  screen.rs draws into a buffer of cells
//! reads events, reconnects      fed by events and keys      the terminal, a test, or text for a pipe
//! ```
//!
//! [`App`] does no I/O and reads no clock: events, keys and the time are arguments, so a test draws the same screens
//! as a terminal. [`run`] connects it to a terminal.

mod app;
mod feed;
mod live_state;
mod run;
mod screen;
mod view;
mod words;

pub use app::App;
pub use run::{restore, run, terminal_width};
pub use screen::{Theme, text};
