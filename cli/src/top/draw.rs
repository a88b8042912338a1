//! How `top` looks: a line of what it rests on, tabs, one table, and the keys.
//!
//! Invariant: what colours say is said by words or numbers, too; nothing is drawn outside of what there is room for.

use std::io::Write;

use fairmesh_api::finding::Finding;
use fairmesh_api::words::{age, name_or_id};
use fairmesh_api::{PeerBody, ShareBody};
use fairmesh_model::clean;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, TableState, Tabs};

use super::model::{Top, View};
use crate::output::terminal::{self, Cells, bar, coloured};
use crate::output::{OutputArgs, Table, or_dash};

/// What is shown of an entry.
const ENTRY: [&str; 6] = [
    "Entry",
    "Target",
    "Used",
    "0 to 100 % of the parent",
    "LevelFS",
    "Rank",
];

/// What is shown of a site.
const SITE: [&str; 6] = [
    "Site",
    "State",
    "In sync",
    "Data",
    "Last usage",
    "Round trip",
];

/// Most findings below the table.
const FINDINGS_MAX: u16 = 3;

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, top: &Top) {
    let wrong = wrong(top);
    let count = u16::try_from(wrong.len()).unwrap_or(FINDINGS_MAX);
    let rows = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(count.min(FINDINGS_MAX)),
        Constraint::Length(1),
    ];
    let [head, tabs, body, foot, keys] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(Paragraph::new(headline(top)), head);
    let at = View::ALL.iter().position(|view| *view == top.view);
    let titles = View::ALL.map(View::title);
    let bold = Style::default().add_modifier(Modifier::REVERSED);
    frame.render_widget(Tabs::new(titles).select(at).highlight_style(bold), tabs);
    match top.view {
        View::Tree => table(frame, body, top, &ENTRY, &entry_widths(), entries(top)),
        View::Sites => table(frame, body, top, &SITE, &site_widths(), sites(top)),
        View::Events => events(frame, body, top),
    }
    let wrong: Vec<Line<'_>> = wrong.into_iter().map(Line::from).collect();
    frame.render_widget(
        Paragraph::new(wrong).style(coloured(top.is_plain, Color::LightRed)),
        foot,
    );
    let words = "Tab or 1-3 view   Up, Down select   Enter into   Backspace out   q quit";
    frame.render_widget(
        Paragraph::new(words).style(Style::default().add_modifier(Modifier::DIM)),
        keys,
    );
}

/// One look, without a terminal.
pub(super) fn plain(top: &Top, format: &OutputArgs, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "{}", headline(top))?;
    let mut shares = Table::new(&ENTRY.join("|"));
    entries(top)
        .into_iter()
        .for_each(|(cells, _)| shares.row(cells));
    shares.write(out, format)?;
    writeln!(out)?;
    let mut table = Table::new(&SITE.join("|"));
    sites(top)
        .into_iter()
        .for_each(|(cells, _)| table.row(cells));
    table.write(out, format)?;
    wrong(top)
        .into_iter()
        .try_for_each(|line| writeln!(out, "{line}"))
}

/// Where one is, and what it rests on.
fn headline(top: &Top) -> String {
    if let Some(error) = &top.error {
        return format!("the node does not answer, this is of before: {error}");
    }
    let Some(seen) = &top.seen else {
        return "asking the node".to_owned();
    };
    let heading = seen.heading.lines().next().unwrap_or_default();
    let path = top.path().unwrap_or("/");
    format!(
        "{} {}  {heading}",
        clean(&seen.status.node.name),
        clean(path)
    )
}

/// What needs somebody, the worst first.
fn wrong(top: &Top) -> Vec<String> {
    let seen = top.seen.iter();
    let findings = seen.flat_map(|seen| &seen.status.notices);
    let findings = findings.filter(|found| found.needs_somebody());
    let line = |found: &Finding| {
        format!(
            "{}: {} [{}]",
            found.severity,
            clean(&found.text),
            found.code
        )
    };
    findings.map(line).collect()
}

fn entries(top: &Top) -> Vec<Cells> {
    let entries = top.seen.iter().flat_map(|seen| &seen.entries);
    entries
        .map(|entry| (entry_cells(entry), entry_colour(entry)))
        .collect()
}

fn entry_cells(entry: &ShareBody) -> Vec<String> {
    let name = entry.path.rsplit('/').next().unwrap_or(&entry.path);
    let more = if entry.leaf { "" } else { "/" };
    vec![
        format!("{}{more}", clean(name)),
        percent(&entry.target),
        percent(&entry.actual),
        bar(&entry.target, &entry.actual),
        entry.level_fs.chars().take(7).collect(),
        entry.rank.to_string(),
    ]
}

/// Blue for less than the target, yellow for more.
fn entry_colour(entry: &ShareBody) -> Option<Color> {
    let is_under = entry
        .deviation
        .starts_with(|c: char| c == '+' || c.is_ascii_digit());
    let is_even = entry
        .deviation
        .chars()
        .all(|c| matches!(c, '0' | '.' | '+' | '-'));
    match (is_even, is_under) {
        (true, _) => None,
        (_, true) => Some(Color::LightBlue),
        (_, false) => Some(Color::LightYellow),
    }
}

/// Percent with one decimal.
fn percent(text: &str) -> String {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    format!("{whole}.{} %", part.chars().next().unwrap_or('0'))
}

fn sites(top: &Top) -> Vec<Cells> {
    let peers = top.seen.iter().flat_map(|seen| &seen.status.peers);
    peers.map(site_cells).collect()
}

fn site_cells(peer: &PeerBody) -> Cells {
    let (state, colour) = match peer.state.is_well() {
        true => (peer.state.name(), None),
        false => (peer.state.name(), Some(Color::LightRed)),
    };
    let ago =
        |ms: Option<u64>| or_dash(ms.map(|ms| format!("{} ago", age(fairmesh_model::Millis(ms)))));
    let trip = or_dash(peer.round_trip_us.map(|us| format!("{} ms", us / 1_000)));
    let name = name_or_id(peer.name.as_deref(), &peer.site);
    let cells = vec![
        name,
        state.to_owned(),
        ago(peer.agreed_age_ms),
        ago(peer.data_age_ms),
        ago(peer.usage_age_ms),
        trip,
    ];
    (cells, colour)
}

fn entry_widths() -> [Constraint; 6] {
    let bar = u16::try_from(ENTRY[3].len()).unwrap_or(24);
    [
        Constraint::Min(12),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(bar),
        Constraint::Length(8),
        Constraint::Length(6),
    ]
}

/// Together with the gaps 80 columns, for the longest state and ages such as `59m 59s ago`.
fn site_widths() -> [Constraint; 6] {
    let age = Constraint::Length(11);
    [
        Constraint::Min(16),
        Constraint::Length(15),
        age,
        age,
        age,
        Constraint::Length(10),
    ]
}

fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    top: &Top,
    names: &[&str],
    widths: &[Constraint],
    rows: Vec<Cells>,
) {
    let table = terminal::table(names, widths, rows, top.is_plain);
    let table = table.row_highlight_style(Style::default().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(Some(top.selected));
    frame.render_stateful_widget(table, area, &mut state);
}

fn events(frame: &mut Frame<'_>, area: Rect, top: &Top) {
    let none = ["nothing has happened since this began".to_owned()];
    let lines = top.events.iter().skip(top.selected);
    let lines: Vec<Line<'_>> = match top.events.is_empty() {
        true => none.iter().map(|line| Line::from(line.as_str())).collect(),
        false => lines.map(|line| Line::from(line.as_str())).collect(),
    };
    frame.render_widget(Paragraph::new(lines), area);
}

#[cfg(test)]
mod tests;
