//! Draws the two lines at the top: the server and its health, and the rates of the last second.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use tollway_client::http::{LiveCounts, LiveSnapshot};

use super::Theme;
use super::table::{Cell, cut, width_of};
use crate::app::App;
use crate::live_state::{LiveState, decided};
use crate::words;

/// The number of lines.
pub(super) const ROWS: u16 = 2;
/// The spaces between two figures.
const GAP: u16 = 3;
/// The columns that the name of the server needs at least.
const SERVER_MIN: u16 = 7;

/// Holds the texts of the header.
pub(super) struct HeaderLines {
    server: String,
    health: Cell,
    figures: Vec<Cell>,
}

pub(super) fn lines(app: &App, now: Duration, theme: Theme) -> HeaderLines {
    let (shown, live) = (app.shown(), app.live());
    let health = match (live.lost(), shown.snapshot()) {
        (Some(lost), _) => {
            let seconds = words::duration(now.saturating_sub(lost.since).as_secs().max(1) as f64);
            let text = format!("connection lost {seconds} ago, trying again: {}", lost.reason);
            Cell::new(text, theme.alarm())
        }
        (None, Some(snapshot)) => health(snapshot, theme),
        (None, None) => Cell::new("waiting for the first snapshot", theme.warn()),
    };
    let server = shown.snapshot().map_or_else(String::new, |snapshot| {
        let server = &snapshot.server;
        format!("{}  {}  up {}", server.host, server.version, words::duration(server.uptime))
    });
    let figures = shown.snapshot().map(|snapshot| figures(shown, snapshot, theme)).unwrap_or_default();
    HeaderLines { server: format!("Tollway  {server}"), health, figures }
}

pub(super) fn draw(lines: &HeaderLines, area: Rect, buffer: &mut Buffer) {
    let HeaderLines { server, health, figures } = lines;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let text = cut(&health.text, area.width);
    let left = area.width - width_of(&text);
    buffer.set_stringn(area.x + left, area.y, &text, usize::from(area.width), health.style);
    // A reason can be long: it then takes the place of the server.
    if let Some(room) = left.checked_sub(GAP).filter(|room| *room >= SERVER_MIN) {
        buffer.set_stringn(area.x, area.y, cut(server, room), usize::from(room), bold);
    }
    let mut x = area.x;
    for figure in figures {
        let width = width_of(&figure.text);
        if x + width > area.right() {
            break;
        }
        buffer.set_stringn(x, area.y + 1, &figure.text, usize::from(width), figure.style);
        x += width + GAP;
    }
}

fn health(snapshot: &LiveSnapshot, theme: Theme) -> Cell {
    let nodes = &snapshot.store.nodes;
    let unreachable = nodes.iter().filter(|node| node.state == "unreachable").count();
    if !snapshot.server.healthy {
        return Cell::new("a part of the server failed; see its log", theme.alarm());
    }
    if snapshot.server.draining {
        return Cell::new("draining", theme.warn());
    }
    if unreachable > 0 {
        let text = format!("{unreachable} of {} Redis nodes unreachable", nodes.len());
        return Cell::new(text, theme.warn());
    }
    Cell::new("healthy", theme.allow())
}

/// Returns the figures of the last second, the most important ones first.
fn figures(shown: &LiveState, snapshot: &LiveSnapshot, theme: Theme) -> Vec<Cell> {
    let LiveSnapshot { totals, latency, .. } = snapshot;
    let sum = |of: fn(&LiveCounts) -> u64| shown.totals().iter().map(of).fold(0, u64::saturating_add);
    let (all, denied) = (sum(decided), sum(|second| second.denied));
    let share = (all > 0).then(|| denied as f64 / all as f64);
    let rate = |name: &str, count: u64| format!("{name} {}/s", words::count(count));
    let alarming = |count: u64, style: Style| if count > 0 { style } else { Style::new() };
    let mut figures = vec![
        Cell::new(rate("allowed", totals.allowed), theme.allow()),
        Cell::new(rate("denied", totals.denied), alarming(totals.denied, theme.deny())),
        Cell::new(rate("without store", totals.degraded), alarming(totals.degraded, theme.warn())),
    ];
    if let Some(latency) = latency {
        let (half, most) = (words::latency(latency.p50), words::latency(latency.p99));
        figures.push(Cell::plain(format!("p50 {half} p99 {most}")));
    }
    if let Some(share) = share {
        figures.push(Cell::plain(format!("{} denied in 10 min", words::percent(Some(share)))));
    }
    figures
}
