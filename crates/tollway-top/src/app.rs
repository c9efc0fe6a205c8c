//! The program without its terminal: events, keys and the time go in, and a screen comes out.

use std::ops::ControlFlow;
use std::time::Duration;

use ratatui::crossterm::event::KeyEvent;
use tollway_client::http::LiveEvent;

use crate::live_state::LiveState;
use crate::view::{KeyEffect, View};

/// The figures of a server, and what a person has chosen to see of them.
#[derive(Debug, Default)]
pub struct App {
    live: LiveState,
    /// The figures at the time of the pause, if there is one. Events are taken meanwhile.
    paused: Option<Box<LiveState>>,
    view: View,
}

impl App {
    /// Takes an event of the server.
    pub fn apply(&mut self, event: LiveEvent) {
        self.live.apply(event);
    }

    /// Takes the news that the connection ended for this reason. The figures stay on the screen.
    pub fn set_lost(&mut self, reason: String, now: Duration) {
        self.live.set_lost(reason, now);
    }

    /// Returns whether the connection has ended and is not back.
    pub fn is_lost(&self) -> bool {
        self.live.lost().is_some()
    }

    /// Returns whether there is a snapshot to show.
    pub fn has_snapshot(&self) -> bool {
        self.live.snapshot().is_some()
    }

    /// Takes a key. A break means that the person wants to leave.
    pub fn press(&mut self, key: KeyEvent) -> ControlFlow<()> {
        match self.view.press(key) {
            KeyEffect::Quit => return ControlFlow::Break(()),
            KeyEffect::TogglePause => {
                self.paused = if self.paused.is_some() { None } else { Some(Box::new(self.live.clone())) };
            }
            KeyEffect::Nothing => {}
        }
        let rows = crate::screen::row_counts(self);
        self.view.limit_scrolling(rows);
        ControlFlow::Continue(())
    }

    /// Returns the figures that the screen shows.
    pub(crate) fn shown(&self) -> &LiveState {
        self.paused.as_deref().unwrap_or(&self.live)
    }

    pub(crate) const fn live(&self) -> &LiveState {
        &self.live
    }

    pub(crate) const fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    pub(crate) const fn view(&self) -> &View {
        &self.view
    }
}
