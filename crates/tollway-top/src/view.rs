//! Holds what a person has chosen to see: the order, the filter, the list, the panel that has the focus.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The longest filter, in characters.
const FILTER_MAX: usize = 100;

/// Names the orders that the limits can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LimitOrder {
    /// By the requests of the last second.
    #[default]
    Requests,
    /// By the denials of the last second.
    Denied,
    /// By the share of requests that were denied over the last minutes.
    Share,
    Name,
}

impl LimitOrder {
    const fn next(self) -> Self {
        match self {
            Self::Requests => Self::Denied,
            Self::Denied => Self::Share,
            Self::Share => Self::Name,
            Self::Name => Self::Requests,
        }
    }
}

/// The list of ids that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IdList {
    #[default]
    Denied,
    Spent,
}

/// One part of the screen that has rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Panel {
    #[default]
    Limits,
    Ids,
    Denials,
    Store,
}

impl Panel {
    pub(crate) const ALL: [Self; 4] = [Self::Limits, Self::Ids, Self::Denials, Self::Store];

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Limits => 0,
            Self::Ids => 1,
            Self::Denials => 2,
            Self::Store => 3,
        }
    }

    const fn moved(self, steps: usize) -> Self {
        Self::ALL[(self.index() + steps) % Self::ALL.len()]
    }
}

/// Keeps the choices of a person.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) order: LimitOrder,
    pub(crate) list: IdList,
    pub(crate) focus: Panel,
    pub(crate) filter: String,
    /// True while the filter is typed.
    pub(crate) is_typing: bool,
    pub(crate) shows_help: bool,
    /// The number of rows that each panel has scrolled down.
    scrolled: [usize; Panel::ALL.len()],
}

/// The effect of a key that is not a choice of what is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyEffect {
    Nothing,
    TogglePause,
    Quit,
}

impl View {
    /// Takes a key.
    pub(crate) fn press(&mut self, key: KeyEvent) -> KeyEffect {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { KeyEffect::Quit } else { KeyEffect::Nothing };
        }
        if self.is_typing {
            self.type_filter(key.code);
            return KeyEffect::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return KeyEffect::Quit,
            KeyCode::Char(' ') => return KeyEffect::TogglePause,
            KeyCode::Char('?' | 'h') => self.shows_help = !self.shows_help,
            KeyCode::Esc if self.shows_help => self.shows_help = false,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('d') => self.list = IdList::Denied,
            KeyCode::Char('p') => self.list = IdList::Spent,
            KeyCode::Tab => self.focus = self.focus.moved(1),
            KeyCode::BackTab => self.focus = self.focus.moved(Panel::ALL.len() - 1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(|row| row.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(|row| row.saturating_add(1)),
            KeyCode::PageUp => self.scroll(|row| row.saturating_sub(10)),
            KeyCode::PageDown => self.scroll(|row| row.saturating_add(10)),
            KeyCode::Home => self.scroll(|_| 0),
            _ => {}
        }
        KeyEffect::Nothing
    }

    /// Returns whether a row with these texts passes the filter.
    pub(crate) fn shows(&self, texts: &[&str]) -> bool {
        let filter = self.filter.to_lowercase();
        filter.is_empty() || texts.iter().any(|text| text.to_lowercase().contains(&filter))
    }

    /// Returns the first row of a panel that is shown, if `rows` of them fit and there are `all`.
    pub(crate) fn first_row(&self, panel: Panel, rows: usize, all: usize) -> usize {
        self.scrolled[panel.index()].min(all.saturating_sub(rows))
    }

    /// Keeps the numbers of rows within what there is. Otherwise the way back from beyond the end would take as many
    /// keys.
    pub(crate) fn limit_scrolling(&mut self, rows: [usize; Panel::ALL.len()]) {
        for (scrolled, rows) in self.scrolled.iter_mut().zip(rows) {
            *scrolled = (*scrolled).min(rows.saturating_sub(1));
        }
    }

    fn scroll(&mut self, moved: impl Fn(usize) -> usize) {
        let row = &mut self.scrolled[self.focus.index()];
        *row = moved(*row);
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Char(character) if self.filter.chars().count() < FILTER_MAX => {
                self.filter.push(character);
            }
            _ => {}
        }
    }
}
