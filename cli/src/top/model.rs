//! What `top` shows, and what keys and looks do to it.
//!
//! Invariant: no clock and no terminal; what is selected is always an entry that is shown. What has happened is told by
//! comparing two looks, so a condition that came and went between them is not told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fairmesh_model::{WallTime, clean};

use fairmesh_api::words::timestamp;
use fairmesh_api::{ShareBody, StatusBody};

/// Most events that are kept.
const EVENTS_MAX: usize = 500;

/// One look at a node.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// What it rests on, in words.
    pub(super) heading: String,
    pub(super) at_ms: u64,
    pub(super) status: StatusBody,
    /// What is right below the entry that is shown.
    pub(super) entries: Vec<ShareBody>,
}

/// The part of the state that is on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Tree,
    Sites,
    Events,
}

impl View {
    pub(super) const ALL: [Self; 3] = [Self::Tree, Self::Sites, Self::Events];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Tree => "1 Shares",
            Self::Sites => "2 Sites",
            Self::Events => "3 Events",
        }
    }
}

/// A key that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Next,
    View(usize),
    Up,
    Down,
    Into,
    Out,
    Redraw,
}

/// Everything that is drawn.
#[derive(Debug)]
pub(super) struct Top {
    pub(super) view: View,
    pub(super) seen: Option<Seen>,
    /// Why the last look failed.
    pub(super) error: Option<String>,
    /// Recent changes, newest first.
    pub(super) events: VecDeque<String>,
    pub(super) selected: usize,
    pub(super) is_plain: bool,
    path: Option<String>,
}

impl Top {
    pub(super) fn new(is_plain: bool) -> Self {
        Self {
            view: View::Tree,
            seen: None,
            error: None,
            events: VecDeque::new(),
            selected: 0,
            is_plain,
            path: None,
        }
    }

    /// The entry of which what is below is shown; the whole tree where it is none.
    pub(super) fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// How many lines can be selected.
    fn lines(&self) -> usize {
        match (self.view, &self.seen) {
            (View::Tree, Some(seen)) => seen.entries.len(),
            (View::Sites, Some(seen)) => seen.status.peers.len(),
            (View::Events, _) => self.events.len(),
            (_, None) => 0,
        }
    }

    /// Does what a key means; says whether the node is to be asked for something else.
    pub(super) fn press(&mut self, key: Key) -> bool {
        let last = self.lines().saturating_sub(1);
        match key {
            Key::Down => self.selected = (self.selected + 1).min(last),
            Key::Up => self.selected = self.selected.saturating_sub(1),
            Key::Next => {
                let at = View::ALL.iter().position(|view| *view == self.view);
                self.turn_to(View::ALL[(at.unwrap_or(0) + 1) % View::ALL.len()]);
            }
            Key::View(at) => self.turn_to(View::ALL[at.min(View::ALL.len() - 1)]),
            Key::Into if self.view == View::Tree => return self.go_into(),
            Key::Out if self.view == View::Tree => return self.go_out(),
            Key::Into | Key::Out | Key::Redraw | Key::Quit => {}
        }
        false
    }

    fn turn_to(&mut self, view: View) {
        self.view = view;
        self.selected = 0;
    }

    fn go_into(&mut self) -> bool {
        let entry = self
            .seen
            .as_ref()
            .and_then(|seen| seen.entries.get(self.selected));
        let Some(entry) = entry.filter(|entry| !entry.leaf) else {
            return false;
        };
        self.path = Some(entry.path.clone());
        self.selected = 0;
        true
    }

    fn go_out(&mut self) -> bool {
        let Some(path) = self.path.take() else {
            return false;
        };
        let above = path.rsplit_once('/').map(|(above, _)| above.to_owned());
        self.path = above.filter(|above| !above.is_empty());
        self.selected = 0;
        true
    }

    /// Takes what was seen, or why nothing was.
    pub(super) fn take(&mut self, seen: Result<Seen, String>) {
        let mut seen = match seen {
            Ok(seen) => seen,
            Err(why) => {
                // An entry that a new policy no longer has is left.
                self.path = None;
                self.error = Some(clean(&why));
                return;
            }
        };
        // What is below an entry is answered with the entry itself.
        seen.entries
            .retain(|entry| self.path.as_ref() != Some(&entry.path));
        seen.entries
            .sort_by(|a, b| (a.rank, &a.path).cmp(&(b.rank, &b.path)));
        self.error = None;
        if let Some(before) = &self.seen {
            let at = timestamp(WallTime(seen.at_ms / 1_000 * 1_000));
            for event in events(&before.status, &seen.status) {
                self.events.push_front(format!("{at}  {event}"));
            }
            self.events.truncate(EVENTS_MAX);
        }
        self.seen = Some(seen);
        self.selected = self.selected.min(self.lines().saturating_sub(1));
    }
}

/// What has happened between two looks at a node.
fn events(before: &StatusBody, now: &StatusBody) -> Vec<String> {
    let mut events = Vec::new();
    if now.node.uptime_ms < before.node.uptime_ms {
        events.push("the node has started anew".to_owned());
    }
    let findings = |status: &StatusBody| -> BTreeSet<(String, String)> {
        let of = status.notices.iter();
        of.map(|found| (found.code.clone(), clean(&found.text)))
            .collect()
    };
    let (had, has) = (findings(before), findings(now));
    events.extend(
        has.difference(&had)
            .map(|(code, text)| format!("{text} [{code}]")),
    );
    let over = had.difference(&has);
    events.extend(over.map(|(code, text)| format!("over: {text} [{code}]")));
    let reachable = |status: &StatusBody| -> BTreeMap<String, bool> {
        let name = |peer: &fairmesh_api::PeerBody| {
            fairmesh_api::words::name_or_id(peer.name.as_deref(), &peer.site)
        };
        let peers = status.peers.iter();
        peers.map(|peer| (name(peer), peer.reachable)).collect()
    };
    let was = reachable(before);
    for (name, is_reachable) in reachable(now) {
        if was.get(&name).is_some_and(|was| *was != is_reachable) {
            let words = if is_reachable {
                "is connected"
            } else {
                "is not reachable"
            };
            events.push(format!("{name} {words}"));
        }
    }
    let charters = |status: &StatusBody| -> BTreeMap<String, u64> {
        let vos = status.vos.iter();
        vos.map(|vo| {
            (
                fairmesh_api::words::name_or_id(vo.name.as_deref(), &vo.vo),
                vo.charter_version,
            )
        })
        .collect()
    };
    let had = charters(before);
    for (vo, version) in charters(now) {
        if had.get(&vo).is_some_and(|had| *had != version) {
            events.push(format!("VO {vo}: charter {version} is in force"));
        }
    }
    events
}
