//! What is drawn on a whole terminal, and the keys that are pressed there: of `top` and of `demo`.
//!
//! Invariant: what reads keys ends soon after nobody wants to know of them.

use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Constraint;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Cell, Row, Table};
use tokio::sync::mpsc::Sender;

/// Cells of a bar: the whole of the parent.
pub(crate) const BAR: usize = 20;

/// How often is looked whether anybody still wants to know of keys.
const KEYS_EVERY: Duration = Duration::from_millis(200);

/// Whether colours are not wanted.
pub(crate) fn is_plain() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// A colour, where colours are wanted.
pub(crate) fn coloured(is_plain: bool, colour: Color) -> Style {
    match is_plain {
        true => Style::default(),
        false => Style::default().fg(colour),
    }
}

/// Cells of a row, and its colour.
pub(crate) type Cells = (Vec<String>, Option<Color>);

/// Rows below a bold header.
pub(crate) fn table<'a>(
    header: &[&'a str],
    widths: &[Constraint],
    rows: impl IntoIterator<Item = Cells>,
    is_plain: bool,
) -> Table<'a> {
    let rows = rows.into_iter().map(|(cells, colour)| {
        let row = Row::new(cells);
        match colour {
            Some(colour) => row.style(coloured(is_plain, colour)),
            None => row,
        }
    });
    let bold = Style::default().add_modifier(Modifier::BOLD);
    let header = Row::new(header.iter().copied().map(Cell::from));
    Table::new(rows, widths.iter().copied()).header(header.style(bold))
}

/// Percent that was used, with a mark where the target is.
pub(crate) fn bar(target: &str, used: &str) -> String {
    let cells = |text: &str| {
        let whole = text.split('.').next().and_then(|it| it.parse().ok());
        (whole.unwrap_or(0_usize).min(100) * BAR + 50) / 100
    };
    let (target, used) = (cells(target), cells(used));
    let cell = |at: usize| match (at + 1 == target.max(1), at < used) {
        (true, _) => '+',
        (_, true) => '#',
        (_, false) => '.',
    };
    (0..BAR).map(cell).collect()
}

/// Hands over what keys mean, and `redraw` where the terminal has another size, until nobody takes it. Control and C is
/// `quit`.
pub(crate) fn read_keys<K: Copy>(
    sender: &Sender<K>,
    meaning: impl Fn(KeyCode) -> Option<K>,
    quit: K,
    redraw: K,
) {
    while !sender.is_closed() {
        let read =
            event::poll(KEYS_EVERY).and_then(|is_there| is_there.then(event::read).transpose());
        let meant = match read {
            Ok(Some(Event::Key(key))) if key.kind == KeyEventKind::Release => None,
            Ok(Some(Event::Key(key))) if is_interrupt(key) => Some(quit),
            Ok(Some(Event::Key(key))) => meaning(key.code),
            Ok(Some(Event::Resize(..))) => Some(redraw),
            Ok(_) => None,
            // The terminal is gone.
            Err(_) => return,
        };
        if meant.is_some_and(|key| sender.blocking_send(key).is_err()) {
            return;
        }
    }
}

fn is_interrupt(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}
