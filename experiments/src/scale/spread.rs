//! One change, or some at once, on their way through a Grid at rest.
//!
//! Invariant: a site counts as reached when it holds every change, as its version vectors say at the
//! end; hops and times are those of the way by which each change came first.
//!
//! Deliberately not here: building the Grid.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_gossip::wire::Push;
use fairmesh_model::{IncarnationId, Millis, VoId, WallTime};
use serde::{Deserialize, Serialize};

use super::probe::Probe;
use simnet::vo::{HOUR, START, Vo, job, site_id};
use simnet::world::{StepKind, World};

/// How long the traffic of a change is watched, in minutes.
const MINUTES: u64 = 1;

/// How a change spread.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Spread {
    /// Jobs that were reported.
    pub jobs: usize,
    /// Cells that they changed.
    pub cells: usize,
    /// Sites that held everything at the end.
    pub reached: usize,
    /// Until the last site held the last change, milliseconds.
    pub last_ms: u64,
    /// Most hops of any change to any site.
    pub hops_max: u32,
    /// Mean of all changes to all sites.
    pub hops_mean: f64,
    /// Copies of each push that a node received, the first included.
    pub copies_per_node: f64,
    /// Bytes that a node received beyond what it does in idle times.
    pub bytes_per_node: f64,
    /// The same as it is on the wire: with all frames, and what nodes tell each other about pushes.
    pub wire_bytes_per_node: f64,
    /// Bytes of second and later copies of pushes.
    pub copy_bytes_per_node: f64,
    /// Bytes of the pushes, each once.
    pub batch_bytes: u64,
    /// Bytes of what changed alone, each once, in the form of the pushes.
    pub cell_bytes: u64,
    /// What a perfect code would need: which site, account and window, and the amount in
    /// core-seconds.
    pub entropy_bytes: f64,
    /// Percent of the sites that held everything after so many milliseconds.
    pub curve: Vec<(f64, f64)>,
}

impl Spread {
    /// Bytes received by a node, over those of the signed batches.
    pub fn against_batches(&self) -> f64 {
        self.bytes_per_node / self.batch_bytes as f64
    }

    /// Bytes received by a node, over those of the changed cells.
    pub fn against_cells(&self) -> f64 {
        self.bytes_per_node / self.cell_bytes as f64
    }
}

/// A change under way: by node, at how many hops it came.
struct Change {
    push: Vec<u8>,
    stream: IncarnationId,
    seq: fairmesh_model::Seq,
    hops: BTreeMap<usize, u32>,
}

/// Cells that `Reports::of_cells` can change: as many hours of the last three days as twelve users
/// each have. Older ones would be counted by the day.
pub const CELLS_MAX: usize = 3 * 24 * USERS;

/// Users of [`VoSpec::small`](simnet::vo::VoSpec::small).
const USERS: usize = 12;

/// What sites report at once.
pub(super) struct Reports {
    /// Sites, and for each job how many hours ago it ended, and whose it is.
    jobs: Vec<(usize, Vec<(u64, usize)>)>,
}

impl Reports {
    /// One job of each site, of the last hour.
    pub(super) fn of_sites(sites: &[usize]) -> Self {
        let jobs = sites.iter().map(|site| (*site, vec![(0, 6)]));
        Self {
            jobs: jobs.collect(),
        }
    }

    /// So many jobs of one site that each change another cell.
    pub(super) fn of_cells(site: usize, cells: usize) -> Self {
        let jobs = (0..cells).map(|number| ((number / USERS) as u64, number % USERS));
        Self {
            jobs: vec![(site, jobs.collect())],
        }
    }

    fn count(&self) -> usize {
        self.jobs.iter().map(|(_, jobs)| jobs.len()).sum()
    }

    /// Reports them; jobs are of half an hour, so that none lies in two windows.
    fn make(self, world: &mut World) {
        let now = WallTime(START.0 + world.now().0);
        let began = WallTime(now.0 - now.0 % HOUR.0);
        for (site, jobs) in self.jobs {
            let record = |(hours, user): (u64, usize)| {
                let start = began.before(HOUR.times(hours + 1));
                let ran = (start, start.after(Millis(HOUR.0 / 2)));
                let (group, name) = (format!("g{}", user / 4), format!("u{}", user % 4));
                let job_name = format!("scale {now:?} {hours} {user}");
                job(job_name, "grid", (&group, &name), ran, 16)
            };
            world.report(site, jobs.into_iter().map(record).collect());
        }
    }
}

/// Has jobs reported, and watches.
pub(super) fn spread(
    world: &mut World,
    vo: &Vo,
    probe: &Probe,
    reports: Reports,
    idle: Received,
) -> Spread {
    // At rest: batches leave at once.
    world.run_for(Millis(60_000));
    let (before, pushes) = (received(world), received_pushes(world));
    let accepted = accepted_by_all(world);
    let began = world.now();
    let jobs = reports.count();
    probe.begin();
    reports.make(world);
    let (mut changes, mut result) = begun(world, probe.end(), vo.id);
    result.jobs = jobs;
    // Each is of another account and hour.
    result.cells = jobs;
    let end = began.after(Millis(MINUTES * 60_000));
    let mut missing = vec![changes.len(); world.nodes().len()];
    for change in &changes {
        change.hops.keys().for_each(|node| missing[*node] -= 1);
    }
    let total = world.nodes().len();
    let mut held = missing.iter().filter(|left| **left == 0).count();
    result.curve.push((0.0, percent(held, total)));
    while let Some(step) = world.step_until(end) {
        let Some(node) = step.node.filter(|node| missing[*node] > 0) else {
            continue;
        };
        let fresh = arrived(world, vo.id, probe, node, step.kind, &mut changes);
        if fresh == 0 {
            continue;
        }
        missing[node] -= fresh;
        result.last_ms = step.at.since(began).0;
        if missing[node] == 0 {
            held += 1;
            result
                .curve
                .push((result.last_ms as f64, percent(held, total)));
        }
    }
    world.run_until(end);
    let hops: Vec<u32> = changes
        .iter()
        .flat_map(|change| change.hops.values().copied())
        .filter(|hops| *hops > 0)
        .collect();
    result.hops_max = hops.iter().copied().max().unwrap_or(0);
    result.hops_mean = hops.iter().map(|hops| f64::from(*hops)).sum::<f64>() / hops.len() as f64;
    result.reached = (0..total)
        .filter(|node| holds(world, vo.id, *node, &changes))
        .count();
    let nodes = total as f64;
    let per_node = |sum: u64| sum as f64 / nodes;
    let came = received_pushes(world);
    let (messages, push_bytes) = (came.0 - pushes.0, came.1 - pushes.1);
    let first = accepted_by_all(world) - accepted;
    result.copies_per_node = per_node(messages) / changes.len() as f64;
    result.copy_bytes_per_node =
        per_node(push_bytes) * (messages - first) as f64 / messages.max(1) as f64;
    let (after, minutes) = (received(world), MINUTES as f64);
    result.bytes_per_node = after.payload - before.payload - idle.payload * minutes;
    result.wire_bytes_per_node = after.wire - before.wire - idle.wire * minutes;
    result
}

/// What was pushed, as changes, with their sizes.
fn begun(world: &World, made: Vec<(usize, Vec<u8>)>, vo: VoId) -> (Vec<Change>, Spread) {
    let mut spread = Spread::default();
    let mut seen = BTreeSet::new();
    let mut changes = Vec::new();
    for (node, push) in made {
        let cell_bytes = match Push::from_bytes(&push) {
            Ok(Push::Next(next)) => next.changed_bytes(),
            Ok(Push::Head(_, Some(delta))) => delta.len(),
            _ => 0,
        };
        let vectors = world.site(node).map(|site| site.vectors());
        let own = vectors.and_then(|vectors| {
            let heads = vectors.get(&vo)?.iter();
            let mut heads = heads.filter(|(stream, _)| stream.site == site_id(node));
            heads.next_back().map(|(stream, seq)| (*stream, *seq))
        });
        let Some((stream, seq)) = own.filter(|_| cell_bytes > 0) else {
            continue;
        };
        if !seen.insert(push.clone()) {
            continue;
        }
        spread.batch_bytes += push.len() as u64;
        spread.cell_bytes += cell_bytes as u64;
        changes.push(Change {
            push,
            stream,
            seq,
            hops: BTreeMap::from([(node, 0)]),
        });
    }
    (changes, spread)
}

/// How many changes have come to a node with this step.
fn arrived(
    world: &World,
    vo: VoId,
    probe: &Probe,
    node: usize,
    kind: StepKind,
    changes: &mut [Change],
) -> usize {
    let (from, push) = probe.last(node);
    let mut fresh = 0;
    let hops_of = |change: &Change| {
        from.and_then(|from| change.hops.get(&from))
            .map_or(1, |h| h + 1)
    };
    if let Some(push) = push {
        let is_it = |change: &&mut Change| change.push == push;
        if let Some(change) = changes.iter_mut().find(is_it) {
            let hops = hops_of(change);
            fresh += usize::from(change.hops.insert(node, hops).is_none());
        }
    } else if kind == StepKind::Answered {
        let Some(vectors) = world.site(node).map(|site| site.vectors()) else {
            return 0;
        };
        for change in changes
            .iter_mut()
            .filter(|change| !change.hops.contains_key(&node))
        {
            let held = vectors
                .get(&vo)
                .and_then(|vector| vector.get(&change.stream));
            if held.is_some_and(|held| *held >= change.seq) {
                let hops = hops_of(change);
                change.hops.insert(node, hops);
                fresh += 1;
            }
        }
    }
    fresh
}

fn holds(world: &World, vo: VoId, node: usize, changes: &[Change]) -> bool {
    let vectors = world.site(node).map(|site| site.vectors());
    let Some(vector) = vectors.as_ref().and_then(|vectors| vectors.get(&vo)) else {
        return false;
    };
    changes.iter().all(|change| {
        vector
            .get(&change.stream)
            .is_some_and(|held| *held >= change.seq)
    })
}

fn percent(part: usize, whole: usize) -> f64 {
    part as f64 * 100.0 / whole as f64
}

/// Bytes that a node has received in the mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Received {
    /// Of pushes, requests and answers.
    pub(super) payload: f64,
    /// As they were on the wire, with what nodes tell each other about pushes.
    pub(super) wire: f64,
}

/// All that nodes ever received.
pub(super) fn received(world: &World) -> Received {
    let (mut payload, mut wire) = (0, 0);
    for node in world.nodes() {
        let of = &node.traffic;
        let flows = [of.push, of.ask, of.answer];
        payload += flows.iter().map(|of| of.received_bytes).sum::<u64>();
        wire += flows.iter().map(|of| of.received_wire_bytes).sum::<u64>();
        wire += of.control.received_wire_bytes;
    }
    let nodes = world.nodes().len() as f64;
    Received {
        payload: payload as f64 / nodes,
        wire: wire as f64 / nodes,
    }
}

/// Pushes that all nodes ever received, and their bytes.
fn received_pushes(world: &World) -> (u64, u64) {
    let pushes = world.nodes().iter().map(|node| node.traffic.push);
    pushes.fold((0, 0), |sum, of| {
        (sum.0 + of.received, sum.1 + of.received_bytes)
    })
}

fn accepted_by_all(world: &World) -> u64 {
    world
        .nodes()
        .iter()
        .map(|node| node.verdicts.accepted)
        .sum()
}

/// A batch without cells.
pub(super) fn heartbeat_bytes(of: &Spread) -> f64 {
    let batches = of.batch_bytes.saturating_sub(of.cell_bytes);
    batches as f64 / of.jobs.max(1) as f64
}
