//! Draws a table: a heading, and rows whose columns fit the width.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

/// The spaces between two columns.
const GAP: u16 = 2;
/// The width that texts are cut to in a window that is too narrow even for the columns that always stay.
const TEXT_MIN: u16 = 6;

/// Describes one column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) is_right: bool,
    /// The width that a text is cut to before a column is left out; 0 if it is never cut.
    pub(super) min: u16,
    /// The order in which columns are left out of a narrow table, the largest first; 0 for those that always stay.
    pub(super) drop_rank: u8,
}

impl Column {
    /// A text, which is cut to `min` columns if it must be.
    pub(super) const fn text(title: &'static str, min: u16, drop_rank: u8) -> Self {
        Self { title, is_right: false, min, drop_rank }
    }

    /// A number, which is never cut.
    pub(super) const fn number(title: &'static str, drop_rank: u8) -> Self {
        Self { title, is_right: true, min: 0, drop_rank }
    }
}

/// Holds one text of a table.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) style: Style,
}

impl Cell {
    pub(super) fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }

    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Style::new())
    }
}

/// Draws the heading into the first row of `area`, and rows below it as far as they fit. A row of one cell is a note,
/// which takes the whole width.
pub(super) fn draw(columns: &[Column], rows: &[Vec<Cell>], heading: Style, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let widths = widths(columns, rows, area.width);
    buffer.set_style(Rect { height: 1, ..area }, heading);
    let titles = columns.iter().map(|column| Cell::new(column.title, heading)).collect::<Vec<_>>();
    draw_row(columns, &widths, &titles, area, 0, buffer);
    for (row, offset) in rows.iter().zip(1..area.height) {
        draw_row(columns, &widths, row, area, offset, buffer);
    }
}

fn draw_row(
    columns: &[Column],
    widths: &[Option<u16>],
    cells: &[Cell],
    area: Rect,
    offset: u16,
    buffer: &mut Buffer,
) {
    if let ([cell], [_, _, ..]) = (cells, columns) {
        let text = cut(&cell.text, area.width);
        buffer.set_stringn(area.x, area.y + offset, text, usize::from(area.width), cell.style);
        return;
    }
    let mut x = area.x;
    for ((column, width), cell) in columns.iter().zip(widths).zip(cells) {
        let Some(width) = *width else { continue };
        let text = cut(&cell.text, width);
        let indent = if column.is_right { width.saturating_sub(width_of(&text)) } else { 0 };
        let room = usize::from(area.right().saturating_sub(x + indent));
        buffer.set_stringn(x + indent, area.y + offset, text, room, cell.style);
        x += width + GAP;
    }
}

/// Returns the width of each column, `None` for one that is left out.
fn widths(columns: &[Column], rows: &[Vec<Cell>], available: u16) -> Vec<Option<u16>> {
    let rows: Vec<_> = rows.iter().filter(|row| row.len() == columns.len()).collect();
    let mut widths: Vec<Option<u16>> = columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let texts = rows.iter().filter_map(|row| row.get(index)).map(|cell| width_of(&cell.text));
            Some(texts.fold(width_of(column.title), u16::max))
        })
        .collect();
    loop {
        let shown = widths.iter().flatten().count();
        let gaps = GAP * u16::try_from(shown.saturating_sub(1)).unwrap_or(u16::MAX);
        let needed = widths.iter().flatten().fold(gaps, |sum, width| sum.saturating_add(*width));
        let Some(over) = needed.checked_sub(available).filter(|over| *over > 0) else { return widths };
        let spares = spares(columns, &widths, |column| column.min.max(width_of(column.title)));
        if spares.iter().map(|spare| u32::from(*spare)).sum::<u32>() >= u32::from(over) {
            shrink(&mut widths, &spares, over);
            return widths;
        }
        let dropped =
            (0..columns.len()).filter(|index| widths[*index].is_some() && columns[*index].drop_rank > 0);
        match dropped.max_by_key(|index| columns[*index].drop_rank) {
            Some(index) => widths[index] = None,
            // Only columns are left that always stay.
            None => {
                let spares = self::spares(columns, &widths, |_| TEXT_MIN);
                shrink(&mut widths, &spares, over);
                return widths;
            }
        }
    }
}

/// Returns what each text can be cut by. Numbers are never cut.
fn spares(columns: &[Column], widths: &[Option<u16>], min: impl Fn(&Column) -> u16) -> Vec<u16> {
    let spare = |(column, width): (&Column, &Option<u16>)| match width {
        Some(width) if column.min > 0 => width.saturating_sub(min(column)),
        _ => 0,
    };
    columns.iter().zip(widths).map(spare).collect()
}

/// Takes `over` columns from the widths, one at a time from the one that has most to spare.
fn shrink(widths: &mut [Option<u16>], spares: &[u16], over: u16) {
    let mut spares = spares.to_vec();
    for _ in 0..over {
        let widest = (0..spares.len()).rev().max_by_key(|index| spares[*index]);
        let Some(index) = widest.filter(|index| spares[*index] > 0) else { return };
        spares[index] -= 1;
        widths[index] = widths[index].map(|width| width - 1);
    }
}

/// Returns the text as far as it fits, with an ellipsis if it was longer.
pub(super) fn cut(text: &str, width: u16) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for character in text.chars() {
        kept.push(character);
        if width_of(&kept) >= width {
            kept.pop();
            break;
        }
    }
    kept.push('…');
    kept
}

/// Returns the number of columns that a text takes on a terminal.
pub(super) fn width_of(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_shrink_and_then_are_left_out() {
        let columns = [Column::text("limit", 6, 0), Column::text("why", 5, 2), Column::number("/s", 1)];
        let rows =
            [vec![Cell::plain("RequestsPerAddress"), Cell::plain("burst 5, 5 per 10s"), Cell::plain("120")]];
        for (available, expected) in [
            (43, [Some(18), Some(18), Some(3)]),
            (40, [Some(17), Some(16), Some(3)]),
            (18, [Some(6), Some(5), Some(3)]),
            (17, [Some(12), None, Some(3)]),
            (11, [Some(6), None, Some(3)]),
            (10, [Some(10), None, None]),
            (6, [Some(6), None, None]),
            (4, [Some(6), None, None]),
        ] {
            assert_eq!(widths(&columns, &rows, available), expected, "{available}");
        }
    }

    #[test]
    fn a_text_that_is_cut_says_so() {
        assert_eq!(
            (cut("mallory", 7), cut("mallory", 4), cut("漢字", 3)),
            ("mallory".into(), "mal…".into(), "漢…".into())
        );
    }

    proptest! {
        #[test]
        fn any_text_fits(text in any::<String>(), width in 1_u16..20) {
            prop_assert!(width_of(&cut(&text, width)) <= width);
        }
    }
}
