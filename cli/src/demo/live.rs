//! A demonstration on a whole terminal: shares beside sites and what happened, and the keys below.
//!
//! Invariant: the terminal is given back as it was, however this ends; what colours say is said by words, too.

use std::collections::VecDeque;

use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Table, Wrap};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;

use super::measure::{NodeState, ShareLine};
use super::play::Key;
use super::screen::{Progress, percent};
use crate::output::terminal::{self, BAR, Cells, bar, is_plain, read_keys};

/// Most lines of what happened that are kept.
const NEWS_MAX: usize = 100;

/// Cells of the left column: names, two numbers and a bar.
const SHARES: u16 = 14 + 1 + 6 + 1 + 6 + 1 + BAR as u16;

/// The terminal.
pub(super) struct Live {
    terminal: DefaultTerminal,
    news: VecDeque<String>,
    foot: Vec<String>,
    is_plain: bool,
}

impl Live {
    /// Takes the terminal, if it can be had; what is pressed comes out.
    pub(super) fn start(foot: Vec<String>) -> Option<(Self, mpsc::Receiver<Key>)> {
        let terminal = ratatui::try_init().ok()?;
        let (sender, keys) = mpsc::channel(16);
        std::thread::spawn(move || read_keys(&sender, key_of, Key::Quit, Key::Redraw));
        let live = Self {
            terminal,
            news: VecDeque::new(),
            foot,
            is_plain: is_plain(),
        };
        Some((live, keys))
    }

    /// Takes in what has happened.
    pub(super) fn say(&mut self, line: &str) {
        self.news.push_back(line.to_owned());
        if self.news.len() > NEWS_MAX {
            self.news.pop_front();
        }
    }

    pub(super) fn draw<'a>(
        &mut self,
        headline: &str,
        names: impl Iterator<Item = &'a str>,
        progress: &Progress<'_>,
    ) -> std::io::Result<()> {
        let names: Vec<&str> = names.collect();
        let scene = Scene {
            headline,
            names: &names,
            progress,
            news: &self.news,
            foot: &self.foot,
            is_plain: self.is_plain,
        };
        self.terminal.draw(|frame| draw(frame, &scene)).map(drop)
    }

    /// Gives the terminal back, and what has happened.
    pub(super) fn leave(mut self) -> VecDeque<String> {
        std::mem::take(&mut self.news)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn key_of(code: KeyCode) -> Option<Key> {
    Some(match code {
        KeyCode::Char('c') => Key::Cut,
        KeyCode::Char('n') => Key::Node,
        KeyCode::Char('f') => Key::Flood,
        KeyCode::Char('p') => Key::Policy,
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        _ => return None,
    })
}

/// Everything that is drawn.
struct Scene<'a> {
    headline: &'a str,
    names: &'a [&'a str],
    progress: &'a Progress<'a>,
    news: &'a VecDeque<String>,
    foot: &'a [String],
    is_plain: bool,
}

fn draw(frame: &mut Frame<'_>, scene: &Scene<'_>) {
    let foot = u16::try_from(scene.foot.len()).unwrap_or(3);
    let rows = [
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(foot),
    ];
    let [head, body, below] = Layout::vertical(rows).areas(frame.area());
    let columns = [Constraint::Length(SHARES), Constraint::Fill(1)];
    let [left, right] = Layout::horizontal(columns).spacing(2).areas(body);
    let sites = u16::try_from(scene.names.len()).unwrap_or(u16::MAX);
    let rows = [
        Constraint::Length(sites.saturating_add(2)),
        Constraint::Min(2),
    ];
    let [sites, news] = Layout::vertical(rows).areas(right);
    let bold = Style::default().add_modifier(Modifier::BOLD);
    frame.render_widget(Paragraph::new(scene.headline).style(bold), head);
    frame.render_widget(shares_table(scene), left);
    frame.render_widget(sites_table(scene), sites);
    happened(frame, news, scene);
    let lines: Vec<Line<'_>> = scene.foot.iter().map(|line| line.as_str().into()).collect();
    let dim = Style::default().add_modifier(Modifier::DIM);
    frame.render_widget(Paragraph::new(lines).style(dim), below);
}

fn shares_table(scene: &Scene<'_>) -> Table<'static> {
    let rows = scene.progress.shares.iter().map(|line| {
        let used = percent(line.actual_milli_percent);
        let indent = "  ".repeat(line.path.depth().saturating_sub(1));
        let name = line.path.name().unwrap_or("/");
        let bar = bar(&line.target, &used);
        let cells = vec![format!("{indent}{name}"), line.target.clone(), used, bar];
        (cells, colour(line))
    });
    let widths = [
        Constraint::Min(14),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(BAR as u16),
    ];
    let header = ["Entry", "Target", "Used %", "0 to 100 %"];
    terminal::table(&header, &widths, rows, scene.is_plain)
}

/// Blue for less than the target, yellow for more; nothing within a point.
fn colour(line: &ShareLine) -> Option<Color> {
    let target = line.target.parse::<f64>().unwrap_or(0.0) * 1_000.0;
    let off = line.actual_milli_percent as f64 - target;
    match off {
        off if off.abs() < 1_000.0 => None,
        off if off < 0.0 => Some(Color::LightBlue),
        _ => Some(Color::LightYellow),
    }
}

fn sites_table(scene: &Scene<'_>) -> Table<'static> {
    let states = scene.progress.states;
    let first = states.first().and_then(Option::as_ref);
    let rows = scene.names.iter().zip(states);
    let rows = rows.map(|(name, state)| site(name, state.as_ref(), first));
    let widths = [
        Constraint::Min(8),
        Constraint::Length(5),
        Constraint::Length(8),
    ];
    terminal::table(&["Site", "Peers", "View"], &widths, rows, scene.is_plain)
}

/// A site's row; another colour where it does not hold what the first one does.
fn site(name: &str, state: Option<&NodeState>, first: Option<&NodeState>) -> Cells {
    let cells = |peers, view| vec![name.to_owned(), peers, view];
    let Some(state) = state else {
        let cells = cells("-".to_owned(), "stopped".to_owned());
        return (cells, Some(Color::LightRed));
    };
    let is_one = first.is_some_and(|first| first.holdings == state.holdings);
    let cells = cells(state.connected.to_string(), state.holdings.short());
    (cells, (!is_one).then_some(Color::LightYellow))
}

/// The newest below, as many as there is room for.
fn happened(frame: &mut Frame<'_>, area: Rect, scene: &Scene<'_>) {
    let width = usize::from(area.width.max(1));
    let mut room = usize::from(area.height);
    let fits = |line: &&String| {
        let lines = line.chars().count().div_ceil(width) + 1;
        let is_room = lines <= room;
        room = room.saturating_sub(lines);
        is_room
    };
    let mut lines: Vec<&String> = scene.news.iter().rev().take_while(fits).collect();
    lines.reverse();
    let lines: Vec<Line<'_>> = lines.into_iter().map(|line| line.as_str().into()).collect();
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), area);
}

#[cfg(test)]
mod tests;
