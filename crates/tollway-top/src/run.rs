//! Runs the program in a terminal, and leaves the terminal as it was.

use std::io;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tollway_client::http::EventStream;
use tollway_client::http::blocking::Client;

use crate::feed::{self, News};
use crate::{App, Theme};

/// The longest time that an event waits for the screen. A key is handled at once.
const TICK: Duration = Duration::from_millis(100);

/// Returns the columns of the terminal, if there is one.
pub fn terminal_width() -> Option<u16> {
    ratatui::crossterm::terminal::size().ok().map(|(columns, _)| columns)
}

/// Leaves the terminal as it was, for a program that ends while [`run`] shows something. A terminal that is closed
/// already is no error.
pub fn restore() {
    let _ = ratatui::try_restore();
}

/// Shows the events of a stream in the terminal until a key or `should_stop` ends it, and connects again with the
/// client when the stream ends. The terminal is restored, also after a panic.
pub fn run(
    client: Client,
    stream: EventStream,
    theme: Theme,
    should_stop: impl Fn() -> bool,
) -> io::Result<()> {
    let news = feed::start(client, stream)?;
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, &news, theme, should_stop);
    ratatui::try_restore().and(shown)
}

fn show(
    terminal: &mut DefaultTerminal,
    news: &Receiver<News>,
    theme: Theme,
    should_stop: impl Fn() -> bool,
) -> io::Result<()> {
    let (started, mut app) = (Instant::now(), App::default());
    let mut is_changed = true;
    while !should_stop() {
        let now = started.elapsed();
        // The time since the connection was lost is on the screen.
        if is_changed || app.is_lost() {
            terminal.draw(|frame| app.draw(now, theme, frame.area(), frame.buffer_mut()))?;
        }
        is_changed = false;
        if event::poll(TICK)? {
            is_changed = true;
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press && app.press(key).is_break() => {
                    return Ok(());
                }
                _ => {}
            }
        }
        for news in news.try_iter() {
            is_changed = true;
            match news {
                News::Event(event) => app.apply(event),
                News::Lost(reason) => app.set_lost(reason, now),
            }
        }
    }
    Ok(())
}
