//! Makes the rows of each panel from a snapshot: limits, ids, denials, the store and the gates.

use std::cmp::Ordering;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use tollway_client::http::{GateState, LimitState, LiveSnapshot, StoreState, SubjectKind, TopEntry};

use super::Theme;
use super::chart::sparkline;
use super::table::{self, Cell, Column};
use crate::app::App;
use crate::live_state::{LiveState, decided};
use crate::view::{IdList, LimitOrder, Panel, View};
use crate::words;

/// The columns of a sparkline.
const SPARK_WIDTH: usize = 12;
/// The share of its largest number from which the number of buckets is a warning.
const NEARLY_FULL: f64 = 0.9;

/// Holds the columns and the rows of a panel.
pub(super) struct PanelRows {
    pub(super) panel: Panel,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl PanelRows {
    pub(super) fn of(app: &App, panel: Panel, theme: Theme) -> Self {
        let (state, view) = (app.shown(), app.view());
        let source = state.snapshot().map(|snapshot| Source { state, snapshot, view, theme });
        let (columns, rows) = match panel {
            Panel::Limits => (limit_columns(view.order), source.map(Source::limits)),
            Panel::Ids => (id_columns(view.list), source.map(Source::ids)),
            Panel::Denials => (denial_columns(), source.map(Source::denials)),
            Panel::Store => (store_columns(), source.map(Source::store)),
        };
        Self { panel, columns, rows: rows.unwrap_or_default() }
    }

    /// Returns the number of rows.
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    /// Draws the heading, and the rows from the one with this index.
    pub(super) fn draw(&self, first: usize, has_focus: bool, theme: Theme, area: Rect, buffer: &mut Buffer) {
        table::draw(&self.columns, &self.rows[first..], theme.heading(has_focus), area, buffer);
    }
}

fn limit_columns(order: LimitOrder) -> Vec<Column> {
    let title = match order {
        LimitOrder::Requests => "LIMITS by requests",
        LimitOrder::Denied => "LIMITS by denials",
        LimitOrder::Share => "LIMITS by share denied",
        LimitOrder::Name => "LIMITS by name",
    };
    vec![
        Column::text(title, 12, 0),
        Column::text("numbers", 12, 3),
        Column::text("last 10 min", 0, 2),
        Column::number("/s", 0),
        Column::number("denied/s", 0),
        Column::number("denied", 1),
    ]
}

fn id_columns(list: IdList) -> Vec<Column> {
    let id = Column::text("id", 17, 0);
    match list {
        IdList::Denied => vec![
            Column::text("DENIED MOST", 12, 0),
            id,
            Column::number("in 1 min", 0),
            Column::text("why", 18, 2),
            Column::text("free again in", 0, 1),
        ],
        IdList::Spent => vec![Column::text("SPENT MOST", 12, 0), id, Column::number("in 1 min", 0)],
    }
}

fn denial_columns() -> Vec<Column> {
    vec![
        Column::text("LAST DENIALS", 10, 0),
        Column::text("limit", 8, 0),
        Column::text("id", 14, 0),
        Column::number("cost", 2),
        Column::text("gate", 0, 3),
        Column::text("retry after", 0, 1),
    ]
}

fn store_columns() -> Vec<Column> {
    vec![Column::text("STORE AND GATES", 16, 0), Column::text("state", 10, 0)]
}

/// The things that rows are made from.
#[derive(Clone, Copy)]
struct Source<'a> {
    state: &'a LiveState,
    snapshot: &'a LiveSnapshot,
    view: &'a View,
    theme: Theme,
}

impl Source<'_> {
    fn limits(self) -> Vec<Vec<Cell>> {
        let mut limits: Vec<_> =
            self.snapshot.limits.iter().filter(|limit| self.view.shows(&[&limit.name])).collect();
        limits.sort_by(|a, b| compare(self.view.order, a, b));
        let rows = limits.into_iter().map(|limit| self.limit(limit)).collect();
        self.or_note(rows, "No limits are configured.")
    }

    fn limit(self, limit: &LimitState) -> Vec<Cell> {
        let name = match limit.kind {
            SubjectKind::Limit => limit.name.clone(),
            kind => format!("{} ({})", limit.name, kind_name(kind)),
        };
        let counts = &limit.counts;
        let denied = if counts.denied > 0 { self.theme.deny() } else { Style::new() };
        vec![
            Cell::plain(name),
            Cell::new(&limit.numbers, self.theme.dim()),
            Cell::new(sparkline(&self.state.points(limit), SPARK_WIDTH), self.theme.allow()),
            Cell::plain(words::count(decided(counts))),
            Cell::new(words::count(counts.denied), denied),
            Cell::plain(words::percent(limit.denied_share)),
        ]
    }

    fn ids(self) -> Vec<Vec<Cell>> {
        let (entries, nobody) = match self.view.list {
            IdList::Denied => (&self.snapshot.top_denied, "Nobody was denied in the last minute."),
            IdList::Spent => (&self.snapshot.top_spent, "Nobody spent anything in the last minute."),
        };
        let shown = entries
            .iter()
            .filter(|entry| self.view.shows(&[&entry.limit, &shown_id(entry.kind, entry.id.as_deref())]));
        let rows = shown.map(|entry| self.id(entry)).collect();
        self.or_note(rows, if self.snapshot.server.watch { nobody } else { WATCH_OFF })
    }

    fn id(self, entry: &TopEntry) -> Vec<Cell> {
        let limit = Cell::plain(&entry.limit);
        let id = Cell::plain(shown_id(entry.kind, entry.id.as_deref()));
        let count = words::range(entry.count_min, entry.count_max);
        match self.view.list {
            IdList::Spent => vec![limit, id, Cell::plain(count)],
            IdList::Denied => {
                let free = match entry.retry_after {
                    Some(0.0) => "now".to_owned(),
                    Some(seconds) => words::duration(seconds),
                    None => "–".to_owned(),
                };
                let why = Cell::new(why(entry.numbers.as_deref()), self.theme.dim());
                vec![limit, id, Cell::new(count, self.theme.deny()), why, Cell::plain(free)]
            }
        }
    }

    fn denials(self) -> Vec<Vec<Cell>> {
        let denials = self.snapshot.last_denials.iter();
        let shown = denials
            .filter(|denial| self.view.shows(&[&denial.limit, &shown_id(denial.kind, denial.id.as_deref())]));
        let rows = shown.map(|denial| {
            let ago = words::duration((self.snapshot.at - denial.at).max(0.0));
            let retry = denial.retry_after.map_or_else(|| "–".to_owned(), words::duration);
            vec![
                Cell::new(format!("{ago} ago"), self.theme.dim()),
                Cell::plain(&denial.limit),
                Cell::plain(shown_id(denial.kind, denial.id.as_deref())),
                Cell::plain(words::count(denial.cost)),
                Cell::new(&denial.gate, self.theme.dim()),
                Cell::plain(retry),
            ]
        });
        let nobody = if self.snapshot.server.watch { "Nobody was denied." } else { WATCH_OFF };
        self.or_note(rows.collect(), nobody)
    }

    fn store(self) -> Vec<Vec<Cell>> {
        let mut rows = self.buckets(&self.snapshot.store);
        for node in &self.snapshot.store.nodes {
            let style = match &*node.state {
                "up" => self.theme.allow(),
                "unreachable" => self.theme.deny(),
                _ => self.theme.warn(),
            };
            let since = node.since.map(|seconds| format!(" for {}", words::duration(seconds)));
            let reason = node.reason.as_ref().map(|reason| format!(": {reason}"));
            let state = format!("{}{}{}", node.state, since.unwrap_or_default(), reason.unwrap_or_default());
            rows.push(vec![Cell::plain(format!("redis {}", node.address)), Cell::new(state, style)]);
        }
        rows.extend(self.snapshot.gates.iter().map(|gate| self.gate(gate)));
        rows
    }

    fn buckets(self, store: &StoreState) -> Vec<Vec<Cell>> {
        let row = |name: &str, buckets: u64, max: u64| {
            let is_full = max > 0 && buckets as f64 > NEARLY_FULL * max as f64;
            let style = if is_full { self.theme.warn() } else { Style::new() };
            let state = format!("{} of {}", words::count(buckets), words::count(max));
            vec![Cell::plain(name), Cell::new(state, style)]
        };
        vec![
            row("buckets in memory", store.buckets, store.max_buckets),
            row("buckets made by clients", store.client_buckets, store.max_client_buckets),
        ]
    }

    fn gate(self, gate: &GateState) -> Vec<Cell> {
        let mut state = Vec::new();
        state.extend(gate.requests.map(|requests| format!("{}/s", words::count(requests))));
        state.extend(gate.connections.map(|open| match open {
            1 => "1 connection".to_owned(),
            open => format!("{} connections", words::count(open)),
        }));
        let troubles = [(gate.refused, "refused"), (gate.evicted, "evicted")];
        let troubles = troubles.into_iter().filter(|(count, _)| *count > 0);
        state.extend(troubles.map(|(count, name)| format!("{} {name}", words::count(count))));
        let style = if gate.refused > 0 { self.theme.warn() } else { Style::new() };
        vec![Cell::plain(format!("{} {}", gate.name, gate.address)), Cell::new(state.join(", "), style)]
    }

    /// Returns the rows, or a sentence that says why there are none.
    fn or_note(self, rows: Vec<Vec<Cell>>, note: &str) -> Vec<Vec<Cell>> {
        if !rows.is_empty() {
            return rows;
        }
        let note = if self.view.filter.is_empty() { note } else { "No row contains the filter." };
        vec![vec![Cell::new(note, self.theme.dim())]]
    }
}

/// The reason why no list has an id.
const WATCH_OFF: &str = "The server counts no ids: its configuration has \"watch: off\".";

fn compare(order: LimitOrder, a: &LimitState, b: &LimitState) -> Ordering {
    let by_order = match order {
        LimitOrder::Requests => decided(&b.counts).cmp(&decided(&a.counts)),
        LimitOrder::Denied => b.counts.denied.cmp(&a.counts.denied),
        LimitOrder::Share => b.denied_share.unwrap_or(0.0).total_cmp(&a.denied_share.unwrap_or(0.0)),
        LimitOrder::Name => Ordering::Equal,
    };
    by_order.then_with(|| a.name.cmp(&b.name))
}

/// Returns the reason why the requests of an id were denied: the numbers that they did not fit in.
fn why(numbers: Option<&str>) -> String {
    numbers.map_or_else(|| "–".to_owned(), |numbers| format!("over {numbers}"))
}

/// Returns an id as the console shows it. A rule without selectors has none.
fn shown_id(kind: SubjectKind, id: Option<&str>) -> String {
    match id {
        None => "(not shown)".to_owned(),
        Some("") if kind == SubjectKind::Rule => "–".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(id) => id.to_owned(),
    }
}

const fn kind_name(kind: SubjectKind) -> &'static str {
    match kind {
        SubjectKind::Limit => "limit",
        SubjectKind::Rule => "rule",
        SubjectKind::Key => "key",
        SubjectKind::Inline => "inline",
        SubjectKind::Descriptor => "descriptor",
        SubjectKind::Domain => "domain",
    }
}
