//! Draws the last line: the keys, the filter, and whether the screen is paused; and the page of help.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::Theme;
use super::table::{Cell, cut, width_of};
use crate::app::App;

/// The keys in the last line, the most important ones first.
const KEYS: [(&str, &str); 8] = [
    ("q", "quit"),
    ("?", "help"),
    ("/", "filter"),
    ("s", "sort"),
    ("d", "denied"),
    ("p", "spent"),
    ("tab", "next list"),
    ("space", "pause"),
];

/// All keys, as the page of help has them.
const HELP: [(&str, &str); 11] = [
    ("q, Ctrl-C", "Quit."),
    ("s", "Sort the limits by requests, by denials, by the share denied, or by name."),
    ("/", "Filter: show only rows whose limit or id contains a text. Esc ends the filter."),
    ("d", "List the ids that were denied most in the last minute."),
    ("p", "List the ids that spent most in the last minute."),
    ("tab", "Move to the next list. It gets more rows, and the arrow keys scroll it."),
    ("shift-tab", "Move to the list before."),
    ("up, down", "Scroll the list by a row; page up and page down by ten, home to its start."),
    ("space", "Pause the screen, and go on. The figures are taken meanwhile."),
    ("?, h", "Show this page, and leave it."),
    ("", "\"free again in\" is the time until a request of cost 1 would be allowed."),
];

/// Draws the line at the bottom.
pub(super) fn draw(app: &App, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let view = app.view();
    let mut cells = Vec::new();
    if app.is_paused() {
        cells.push(Cell::new("PAUSED", theme.alarm()));
    }
    if view.is_typing {
        cells.push(Cell::plain(format!("filter: {}_", view.filter)));
        cells.push(Cell::new("enter keeps it, esc ends it", theme.dim()));
    } else {
        if !view.filter.is_empty() {
            cells.push(Cell::new(format!("filter: {}", view.filter), theme.warn()));
        }
        cells.extend(KEYS.map(|(key, effect)| Cell::new(format!("{key} {effect}"), theme.dim())));
    }
    let mut x = area.x;
    for cell in cells {
        let room = area.right().saturating_sub(x);
        // Half a word would be no help; only a filter is shown as far as it fits.
        if room == 0 || (x > area.x && width_of(&cell.text) > room) {
            break;
        }
        let text = cut(&cell.text, room);
        buffer.set_stringn(x, area.y, &text, usize::from(room), cell.style);
        x += width_of(&text) + 2;
    }
}

/// Draws the page of help.
pub(super) fn draw_help(theme: Theme, area: Rect, buffer: &mut Buffer) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let key_width = HELP.iter().map(|(key, _)| width_of(key)).max().unwrap_or(0) + 2;
    let room = area.width.saturating_sub(key_width);
    let lines = HELP.iter().flat_map(|(key, effect)| {
        let wrapped = wrap(effect, room);
        wrapped.into_iter().enumerate().map(|(index, line)| (if index == 0 { *key } else { "" }, line))
    });
    for ((key, line), y) in lines.zip(area.top()..area.bottom()) {
        buffer.set_stringn(area.x, y, key, usize::from(key_width), bold);
        buffer.set_stringn(area.x + key_width.min(area.width), y, line, usize::from(room), theme.dim());
    }
}

/// Splits a text into lines at its spaces.
pub(super) fn wrap(text: &str, width: u16) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("it starts with one");
        if line.is_empty() {
            line.push_str(word);
        } else if width_of(line) + 1 + width_of(word) <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
