//! `fairmesh top`: the share tree, the sites and what happens, live on a terminal; one plain look where there is none.
//!
//! Invariant: the terminal is given back as it was, however this ends; the node is asked for no more than is shown, and the
//! more rarely the longer its answers take.
//! Deliberately not here: what keys do and what has happened (`model`), and how it looks (`draw`).

mod draw;
mod model;

use std::io::{IsTerminal as _, Write};
use std::time::Duration;

use anyhow::Context as _;
use fairmesh_api::client::Control;
use fairmesh_api::{Answer, SharesBody, StatusBody};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::KeyCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ask::{NodeArgs, heading};
use crate::output::terminal::{is_plain, read_keys};
use crate::output::{Exit, OutputArgs};
use model::{Key, Seen, Top};

/// Time between two looks, while answers are quick.
const EVERY: Duration = Duration::from_secs(2);

/// How many times as long as an answer took the next look waits.
const REST: u32 = 10;

/// How long an answer may take before the node is called away.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The share tree, the sites and what happens, live on the terminal
#[derive(Debug, Clone, clap::Args)]
pub struct TopArgs {
    /// Whom to ask.
    #[command(flatten)]
    node: NodeArgs,
    /// Look once, and print it; as where there is no terminal
    #[arg(long)]
    once: bool,
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked for the first time, or the terminal is no terminal.
pub async fn run(args: &TopArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let control = args.node.control();
    let first = look(&control, None).await?;
    let mut top = Top::new(is_plain());
    top.take(Ok(first));
    if args.once || !std::io::stdout().is_terminal() {
        draw::plain(&top, &OutputArgs::default(), out)?;
        return Ok(Exit::Success);
    }
    let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
    let ended = live(&control, &mut top, &mut terminal).await;
    ratatui::restore();
    ended.map(|()| Exit::Success)
}

/// Draws and looks until somebody wants it to end.
async fn live(
    control: &Control,
    top: &mut Top,
    terminal: &mut DefaultTerminal,
) -> anyhow::Result<()> {
    let (sender, mut keys) = mpsc::channel(16);
    std::thread::spawn(move || read_keys(&sender, key_of, Key::Quit, Key::Redraw));
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut next = Instant::now() + EVERY;
    loop {
        terminal.draw(|frame| draw::draw(frame, top))?;
        tokio::select! {
            key = keys.recv() => match key {
                Some(Key::Quit) | None => return Ok(()),
                Some(key) if top.press(key) => next = Instant::now(),
                Some(_) => {}
            },
            () = sleep_until(next) => {
                let began = Instant::now();
                let seen = look(control, top.path()).await;
                top.take(seen.map_err(|error| format!("{error:#}")));
                next = Instant::now() + EVERY.max(began.elapsed() * REST);
            }
            _ = terminate.recv() => return Ok(()),
            _ = hang_up.recv() => return Ok(()),
        }
    }
}

/// What there is now: the node, and what is right below an entry.
async fn look(control: &Control, path: Option<&str>) -> anyhow::Result<Seen> {
    let parameters = [("path", path), ("depth", Some("1"))];
    let asked = async {
        let (shares, _) = control
            .get::<Answer<SharesBody>>("/v1/shares", &parameters)
            .await?;
        let (status, _) = control.get::<Answer<StatusBody>>("/v1/status", &[]).await?;
        anyhow::Ok(Seen {
            heading: heading(&status.rests_on),
            at_ms: status.rests_on.as_of_ms,
            status: status.body,
            entries: shares.body.entries,
        })
    };
    timeout(ANSWER_MAX, asked)
        .await
        .context("no answer from the node")?
}

/// What a key means.
fn key_of(code: KeyCode) -> Option<Key> {
    Some(match code {
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        KeyCode::Tab => Key::Next,
        KeyCode::Char(digit @ '1'..='3') => Key::View(usize::from(digit as u8 - b'1')),
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => Key::Into,
        KeyCode::Backspace | KeyCode::Left | KeyCode::Char('h') => Key::Out,
        _ => return None,
    })
}
