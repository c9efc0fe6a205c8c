//! Draws the screen: where each part is, and how many rows it has.

mod chart;
mod footer;
mod header;
mod panels;
mod table;

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use crate::app::App;
use crate::view::Panel;
use panels::PanelRows;

/// The smallest window that has room for anything.
const SMALLEST: (u16, u16) = (30, 8);
/// The width from which two columns of panels are shown.
const TWO_COLUMNS: u16 = 150;
/// The columns between two panels that are beside each other.
const GUTTER: u16 = 2;
/// The longest text of one screen, in lines: a server sends at most 500 limits, 100 denials and 20 ids.
const TEXT_ROWS_MAX: u16 = 1_000;

/// Says whether the screen has colors, and which.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// False if the screen has no colors, as `NO_COLOR` asks.
    pub has_colors: bool,
}

impl Theme {
    fn colored(self, color: Color) -> Style {
        if self.has_colors { Style::new().fg(color) } else { Style::new() }
    }

    fn allow(self) -> Style {
        self.colored(Color::Green)
    }

    fn deny(self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn warn(self) -> Style {
        self.colored(Color::Yellow)
    }

    fn dim(self) -> Style {
        self.colored(Color::DarkGray)
    }

    /// The heading of a panel. The one that the keys move is reversed.
    fn heading(self, has_focus: bool) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if has_focus {
            style.add_modifier(Modifier::REVERSED)
        } else {
            style.add_modifier(Modifier::UNDERLINED)
        }
    }

    fn alarm(self) -> Style {
        self.deny().add_modifier(Modifier::REVERSED)
    }
}

impl App {
    /// Draws the whole screen into `area`. `now` is the time that losses of the connection are counted with.
    pub fn draw(&self, now: Duration, theme: Theme, area: Rect, buffer: &mut Buffer) {
        if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
            let (width, height) = SMALLEST;
            let text = format!("The window is too small: it needs {width} x {height}.");
            for (line, y) in footer::wrap(&text, area.width).iter().zip(area.top()..area.bottom()) {
                buffer.set_stringn(area.x, y, line, usize::from(area.width), Style::new());
            }
            return;
        }
        let header = header::lines(self, now, theme);
        let chart_rows = chart_rows(area.height);
        let mut parts = Parts { rest: area };
        header::draw(&header, parts.top(header::ROWS), buffer);
        chart::draw(self.shown().totals(), theme, parts.top(chart_rows), buffer);
        footer::draw(self, theme, parts.bottom(1), buffer);
        if self.view().shows_help {
            footer::draw_help(theme, parts.rest, buffer);
        } else {
            draw_panels(self, theme, parts.rest, buffer);
        }
    }
}

/// Returns one screen as text without colors, with all rows, for a pipe.
pub fn text(app: &App, width: u16) -> String {
    let rows: usize = row_counts(app).iter().map(|rows| rows + 1).sum();
    let all = rows + usize::from(header::ROWS + chart_rows(u16::MAX)) + 1;
    let height = u16::try_from(all).unwrap_or(u16::MAX).clamp(SMALLEST.1, TEXT_ROWS_MAX);
    let area = Rect::new(0, 0, width.max(SMALLEST.0), height);
    let mut buffer = Buffer::empty(area);
    app.draw(Duration::ZERO, Theme { has_colors: false }, area, &mut buffer);
    // The last line is about keys.
    let lines = (0..height - 1).map(|y| line(&buffer, y));
    let text = lines.collect::<Vec<_>>().join("\n");
    text.trim_end().to_owned()
}

/// Returns one line of a screen, without the spaces at its end.
fn line(buffer: &Buffer, y: u16) -> String {
    let symbols = (0..buffer.area.width).filter_map(|x| Some(buffer.cell((x, y))?.symbol()));
    symbols.collect::<String>().trim_end().to_owned()
}

/// Returns the number of rows that each panel has, without its heading.
pub(crate) fn row_counts(app: &App) -> [usize; Panel::ALL.len()] {
    Panel::ALL.map(|panel| PanelRows::of(app, panel, Theme { has_colors: false }).count())
}

/// Hands out rows from the top and from the bottom of an area.
struct Parts {
    rest: Rect,
}

impl Parts {
    fn top(&mut self, rows: u16) -> Rect {
        let rows = rows.min(self.rest.height);
        let part = Rect { height: rows, ..self.rest };
        self.rest = Rect { y: self.rest.y + rows, height: self.rest.height - rows, ..self.rest };
        part
    }

    fn bottom(&mut self, rows: u16) -> Rect {
        let rows = rows.min(self.rest.height);
        self.rest.height -= rows;
        Rect { y: self.rest.bottom(), height: rows, ..self.rest }
    }
}

/// Returns the rows of the chart, which leaves most of a small window to the lists.
const fn chart_rows(height: u16) -> u16 {
    match height {
        ..16 => 0,
        16..20 => 1,
        20..34 => 3,
        _ => 6,
    }
}

fn draw_panels(app: &App, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let focus = app.view().focus;
    let rows = |panel| PanelRows::of(app, panel, theme);
    if area.width < TWO_COLUMNS {
        let panels = Panel::ALL.map(rows);
        return draw_column(&panels, focus, app, theme, area, buffer);
    }
    let left_width = area.width * 3 / 5;
    let left = Rect { width: left_width - GUTTER, ..area };
    let right = Rect { x: area.x + left_width, width: area.width - left_width, ..area };
    draw_column(&[rows(Panel::Limits), rows(Panel::Ids)], focus, app, theme, left, buffer);
    draw_column(&[rows(Panel::Store), rows(Panel::Denials)], focus, app, theme, right, buffer);
}

fn draw_column(panels: &[PanelRows], focus: Panel, app: &App, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let heights = share_rows(area.height, panels, focus);
    let mut parts = Parts { rest: area };
    for (panel, height) in panels.iter().zip(heights) {
        let area = parts.top(height);
        // The rows below the heading.
        let shown = usize::from(height.saturating_sub(1));
        let first = app.view().first_row(panel.panel, shown, panel.count());
        panel.draw(first, panel.panel == focus, theme, area, buffer);
    }
}

/// Shares the rows of a column among its panels: each gets the same, the one with the focus twice as much, and none
/// more than it needs.
fn share_rows(height: u16, panels: &[PanelRows], focus: Panel) -> Vec<u16> {
    let needs: Vec<usize> = panels.iter().map(|panel| panel.count() + 1).collect();
    let mut rows = vec![0_u16; panels.len()];
    let mut left = height;
    while left > 0 {
        let before = left;
        for (index, panel) in panels.iter().enumerate() {
            let turns = if panel.panel == focus { 2 } else { 1 };
            for _ in 0..turns {
                if left > 0 && usize::from(rows[index]) < needs[index] {
                    rows[index] += 1;
                    left -= 1;
                }
            }
        }
        if left == before {
            break;
        }
    }
    rows
}
