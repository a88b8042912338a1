//! All views are identical within three sync intervals of the heal.
//!
//! The intervals begin when messages can flow again and nothing new is said: at the latest of the last
//! session's opening, of the moment by which requests that were under way at the heal have been
//! answered or given up, and of the last batch with cells, which a site may keep for one publish
//! interval. They are as long as the slowest site's.
//!
//! Invariant checked: by their end there has been a moment at which all nodes that mount a VO held
//! the same documents and counters of it, and those that saw it from the same window computed the same. A clock that was
//! ahead and is set right waits for its window to end, so windows may differ for that long.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{ContentHash, Millis, MonoTime, Seq, StreamId, VoId, Window};

use crate::world::World;

/// Sync intervals that are allowed.
const INTERVALS: u64 = 3;

/// When the Grid was healed, and until when it may differ.
#[derive(Debug, Clone, Copy)]
pub struct Liveness {
    /// When everything was put right.
    pub healed: MonoTime,
    sync: Millis,
    /// When messages can flow.
    pub open: MonoTime,
}

impl Liveness {
    /// A Grid that is healed now. Requests of before are given up `timeout` later at the latest, and
    /// what sites have counted and not yet told anybody is published within `publish`.
    pub fn new(healed: MonoTime, sync: Millis, timeout: Millis, publish: Millis) -> Self {
        Self {
            healed,
            sync,
            open: healed.after(timeout.max(publish)),
        }
    }

    /// A session has opened, or a site has published what it still had to.
    pub fn moved(&mut self, at: MonoTime) {
        self.open = self.open.max(at);
    }

    /// The same Grid, which may move on once more until `open`.
    pub fn again(self, open: MonoTime) -> Self {
        Self { open, ..self }
    }

    /// When the three intervals are over.
    pub fn end(&self) -> MonoTime {
        self.open.after(self.sync.times(INTERVALS))
    }

    /// Who differs, if anybody does now.
    pub fn difference(world: &World, vos: &[VoId]) -> Option<(usize, String)> {
        for vo in vos {
            let mut first: Option<(usize, Held)> = None;
            let mut views: BTreeMap<Window, (usize, Option<ContentHash>)> = BTreeMap::new();
            for node in world.nodes() {
                let Some(site) = node.site() else {
                    if node.config.vos.values().any(|of| of == vo) {
                        return Some((node.index, "it does not run".to_owned()));
                    }
                    continue;
                };
                let now = world.now_at(node.index);
                let status = site.vo_status(now).into_iter().find(|of| of.vo == *vo);
                let Some(status) = status else { continue };
                let held = Held {
                    documents: status.documents,
                    counters: status.counters,
                    streams: status.streams,
                };
                match &first {
                    None => first = Some((node.index, held)),
                    Some((who, before)) if !before.says_the_same_as(&held) => {
                        return Some((node.index, tell(*who, *vo, before, &held)));
                    }
                    Some(_) => {}
                }
                let Some(window) = site.reference(*vo) else {
                    continue;
                };
                let view = (node.index, site.view_digest(*vo));
                let (who, known) = *views.entry(window).or_insert(view);
                if known != view.1 {
                    let place = apart(world, *vo, who, node.index);
                    let message = format!(
                        "it computes other numbers for {} than site {who}{place}",
                        vo.short()
                    );
                    return Some((node.index, message));
                }
            }
        }
        None
    }
}

/// What a node holds of a VO.
#[derive(Debug)]
struct Held {
    documents: Option<ContentHash>,
    counters: Option<ContentHash>,
    streams: BTreeMap<StreamId, Seq>,
}

impl Held {
    /// Heartbeats, which change the vector and nothing else, are always on their way to somebody.
    fn says_the_same_as(&self, other: &Self) -> bool {
        self.documents == other.documents && self.counters == other.counters
    }
}

/// The first entry of which two nodes have other sums.
fn apart(world: &World, vo: VoId, a: usize, b: usize) -> String {
    let sums = |node: usize| {
        let site = world.site(node)?;
        let view = site.view();
        let mount = view.mounts().get(&vo)?.clone();
        let snapshot = site.snapshot();
        let rows = snapshot.ids().filter_map(|entry| {
            let path = snapshot.path(entry).relative_to(&mount)?;
            Some((path, snapshot.sums(entry).global))
        });
        Some(rows.collect::<Vec<_>>())
    };
    let (Some(a), Some(b)) = (sums(a), sums(b)) else {
        return String::new();
    };
    let rows = a.iter().zip(&b).rev();
    let mut apart = rows.filter(|(a, b)| a != b);
    apart.next().map_or(String::new(), |((path, a), (_, b))| {
        format!(" ({path}: {b} here, {a} there)")
    })
}

fn tell(who: usize, vo: VoId, a: &Held, b: &Held) -> String {
    let what = if a.documents != b.documents {
        "other documents".to_owned()
    } else if a.streams != b.streams {
        let of = |seq: Option<&Seq>| seq.map_or(0, |seq| seq.0);
        let streams: BTreeSet<_> = a.streams.keys().chain(b.streams.keys()).collect();
        let apart = streams
            .into_iter()
            .filter(|stream| a.streams.get(stream) != b.streams.get(stream));
        let lines: Vec<String> = apart
            .map(|stream| {
                let (theirs, ours) = (of(a.streams.get(stream)), of(b.streams.get(stream)));
                format!("{} {theirs}/{ours}", stream.site.short())
            })
            .collect();
        format!("other batches ({})", lines.join(", "))
    } else {
        "other counters".to_owned()
    };
    format!("it holds {what} of VO {} than site {who}", vo.short())
}
