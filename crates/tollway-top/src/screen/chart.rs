//! Draws the decisions of the last minutes as bars: allowed below, denied on top.

use std::collections::VecDeque;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use tollway_client::http::LiveCounts;

use super::Theme;
use crate::live_state::decided;

/// The parts that one cell is filled in.
const EIGHTHS: usize = 8;
/// A cell that is filled by none to all of its eighths, from below.
const BLOCKS: [&str; EIGHTHS + 1] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Draws one bar in each column, the newest at the right.
pub(super) fn draw(totals: &VecDeque<LiveCounts>, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let bars = grouped(totals, usize::from(area.width));
    let most = bars.iter().map(decided).max().unwrap_or(0);
    let full = usize::from(area.height) * EIGHTHS;
    let first = area.right() - u16::try_from(bars.len()).unwrap_or(area.width);
    for (bar, x) in bars.iter().zip(first..) {
        let (allowed, all) = (scale(bar.allowed, most, full), scale(decided(bar), most, full));
        for (row, y) in (area.top()..area.bottom()).rev().enumerate() {
            let below = row * EIGHTHS;
            let (block, style) = cell(allowed.saturating_sub(below), all.saturating_sub(below), theme);
            buffer.set_string(x, y, block, style);
        }
    }
}

/// Returns the part of `full` that `count` is of `most`. A count above zero is never nothing.
fn scale(count: u64, most: u64, full: usize) -> usize {
    let part = (u128::from(count) * full as u128).div_ceil(u128::from(most.max(1)));
    usize::try_from(part).unwrap_or(full).min(full)
}

/// Returns one cell of a bar, which has this many eighths above the lower edge of the cell.
fn cell(allowed: usize, all: usize, theme: Theme) -> (&'static str, Style) {
    let (allowed, all) = (allowed.min(EIGHTHS), all.min(EIGHTHS));
    if allowed == all {
        return (BLOCKS[all], theme.allow());
    }
    if allowed == 0 {
        return (BLOCKS[all], theme.deny());
    }
    match theme.deny().fg {
        // Two colors fit if both fill the cell.
        Some(denied) if all == EIGHTHS => (BLOCKS[allowed], theme.allow().bg(denied)),
        _ => (BLOCKS[all], theme.allow()),
    }
}

/// Returns at most `columns` bars. Several seconds become one bar, with the counts of its busiest second.
fn grouped(totals: &VecDeque<LiveCounts>, columns: usize) -> Vec<LiveCounts> {
    let seconds = totals.len().div_ceil(columns.max(1)).max(1);
    let newest_first: Vec<_> = totals.iter().rev().copied().collect();
    let busiest = |group: &[LiveCounts]| group.iter().copied().max_by_key(decided).unwrap_or_default();
    newest_first.chunks(seconds).map(busiest).rev().collect()
}

/// Returns points as a line of blocks of at most `width` columns.
pub(super) fn sparkline(points: &[u64], width: usize) -> String {
    let per_block = points.len().div_ceil(width.max(1)).max(1);
    let groups = points.rchunks(per_block).map(|group| group.iter().copied().max().unwrap_or(0));
    let groups: Vec<u64> = groups.rev().collect();
    let most = groups.iter().copied().max().unwrap_or(0);
    groups.iter().map(|point| BLOCKS[scale(*point, most, EIGHTHS)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_the_busiest_of_each_group() {
        assert_eq!(sparkline(&[], 5), "");
        assert_eq!(sparkline(&[0, 0], 5), "  ");
        assert_eq!(sparkline(&[0, 1, 8], 5), " ▁█");
        assert_eq!(sparkline(&[8, 0, 1, 4, 2], 3), "█▁▄");
        assert_eq!(sparkline(&[u64::MAX, u64::MAX], 2), "██");
    }

    #[test]
    fn a_bar_has_the_allowed_below_and_the_denied_on_top() {
        let theme = Theme { has_colors: true };
        let (allow, deny) = (theme.allow(), theme.deny());
        assert_eq!(cell(16, 20, theme), ("█", allow));
        assert_eq!(cell(3, 20, theme), ("▃", allow.bg(deny.fg.unwrap())));
        assert_eq!(cell(0, 5, theme), ("▅", deny));
        assert_eq!(cell(0, 0, theme), (" ", allow));
        let plain = Theme { has_colors: false };
        assert_eq!(cell(3, 20, plain), ("█", Style::new()));
    }
}
