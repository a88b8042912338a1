//! What was reported, added up by itself, and the question whether sites agree with it and with
//! each other.

use std::collections::BTreeMap;

use fairmesh_model::Seq;
use fairmesh_model::{AccountPath, ContentHash, Counters, IncarnationId, Millis, UsageRecord};
use fairmesh_site::{Notice, Site};

use crate::mesh::Mesh;
use crate::vo::{self, GROUPS, HOUR, USERS};

/// Charge and number of jobs by account of the VO.
pub(crate) type Sums = BTreeMap<AccountPath, (u64, u64)>;

/// An independent count of the jobs that were acknowledged.
#[derive(Debug, Default, Clone)]
pub(crate) struct Ledger {
    pub(crate) sums: Sums,
    names: u64,
}

impl Ledger {
    /// Counts a finished job.
    pub(crate) fn count(&mut self, record: &UsageRecord) {
        let word = |word: &Option<String>| word.clone().expect("given");
        let account = format!(
            "/{}/{}",
            word(&record.origin.group),
            word(&record.origin.user)
        );
        let sum = self.sums.entry(vo::path(&account)).or_default();
        sum.0 += u64::from(record.cores) * record.end.since(record.start).0;
        sum.1 += 1;
    }

    /// A finished job of a random user that ended just now; not counted yet.
    pub(crate) fn draw(&mut self, mesh: &mut Mesh, node: usize) -> UsageRecord {
        self.names += 1;
        let end = mesh.now(node).wall;
        let ran = Millis(1 + mesh.dice.below(3 * HOUR.0));
        let group = format!("g{}", mesh.dice.below(GROUPS));
        let user = format!("u{}", mesh.dice.below(USERS));
        let cores = 1 + u32::try_from(mesh.dice.below(8)).expect("small");
        vo::job(
            format!("job-{}", self.names),
            "grid",
            &group,
            &user,
            (end.before(ran), end),
            cores,
        )
    }

    /// A random job is reported at a node, and acknowledged.
    pub(crate) fn report(&mut self, mesh: &mut Mesh, node: usize) -> UsageRecord {
        let record = self.draw(mesh, node);
        let reported = mesh.report(node, std::slice::from_ref(&record));
        assert_eq!(reported.expect("acknowledged").counted, 1);
        self.count(&record);
        record
    }
}

/// Everything by which two sites could differ.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) view: ContentHash,
    documents: Option<ContentHash>,
    heads: BTreeMap<IncarnationId, Seq>,
    pub(crate) sums: Sums,
}

pub(crate) fn state(mesh: &Mesh, node: usize) -> State {
    let site = &mesh.nodes[node].site;
    let status = site.vo_status(mesh.now(node)).swap_remove(0);
    State {
        view: site.view_digest(mesh.vo).expect("mounted and founded"),
        documents: status.held.documents,
        heads: status.held.heads,
        sums: sums(mesh, node),
    }
}

/// What a node computes, however many heads it rests on.
pub(crate) fn seen(mesh: &Mesh, node: usize) -> (ContentHash, Sums) {
    let seen = state(mesh, node);
    (seen.view, seen.sums)
}

pub(crate) fn sums(mesh: &Mesh, node: usize) -> Sums {
    let site = &mesh.nodes[node].site;
    let by_account = site.usage_by_account(Some(mesh.vo));
    let mut read_elsewhere: BTreeMap<AccountPath, Counters> = BTreeMap::new();
    let name = |path: &str| AccountPath::parse(path).ok();
    site.known_usage(Some(mesh.vo))
        .each(name, |_, path, counters| {
            let sum = read_elsewhere.entry(path).or_default();
            *sum = sum.plus(counters);
        });
    assert_eq!(read_elsewhere, by_account, "what other threads read");
    // The days before one and those from it on are all days.
    let today = u32::try_from(mesh.now(node).wall.0 / 86_400_000).expect("a day");
    let mut of_days: BTreeMap<AccountPath, Counters> = BTreeMap::new();
    for days in [0..today, today..u32::MAX] {
        site.known_usage_in(mesh.vo, &days)
            .each(name, |_, path, counters| {
                let sum = of_days.entry(path).or_default();
                *sum = sum.plus(counters);
            });
    }
    assert_eq!(of_days, by_account, "what they read of days");
    if by_account.len() <= ACCOUNTS_ADDED_UP_MAX {
        assert_parts_add_up(site);
    }
    by_account
        .into_iter()
        .filter(|(_, counters)| !counters.is_zero())
        .map(|(path, counters)| (path, (counters.charge, counters.jobs)))
        .collect()
}

/// Entries whose parts are added up, and accounts in which they are: a story may have a hundred thousand.
const ADDED_UP_MAX: usize = 12;
const ACCOUNTS_ADDED_UP_MAX: usize = 500;

/// What sites have used of an entry is, in sum and to the last bit, what the tree has, in both scopes.
fn assert_parts_add_up(site: &Site) {
    if site.is_feeding() {
        return;
    }
    let view = site.view();
    let reader = view.reader();
    // With a line and without one.
    let entries = u32::try_from(reader.entries()).expect("ids are 32 bits");
    let every = reader.entries().div_ceil(ADDED_UP_MAX).max(1);
    let paths = (1..entries).step_by(every);
    let paths = paths.filter_map(|index| Some(reader.path(reader.entry_at(index)?).clone()));
    let paths: Vec<AccountPath> = paths.collect();
    let usage = site.weighed_usage(&paths);
    for path in &paths {
        let sums = usage.sums(path).expect("an entry of the tree");
        for (global, sum) in [(false, sums.local), (true, sums.global)] {
            let parts = usage.by_site(path, global, || true);
            let added = parts.values().map(|part| part.weighted).sum::<u128>();
            assert_eq!(added, sum, "{path}, global: {global}, {parts:?}");
        }
    }
}

/// All sites hold the same, count the same, and that is what was reported.
pub(crate) fn assert_converged(mesh: &mut Mesh, ledger: &Ledger) {
    assert_same(mesh);
    assert_eq!(sums(mesh, 0), ledger.sums, "what was reported");
}

/// All sites hold and count the same.
pub(crate) fn assert_same(mesh: &mut Mesh) {
    mesh.drain();
    for node in 1..mesh.nodes.len() {
        assert_eq!(state(mesh, 0), state(mesh, node), "nodes 0 and {node}");
    }
}

/// Nobody has ever used a number twice.
pub(crate) fn assert_no_fork(mesh: &Mesh) {
    for node in 0..mesh.nodes.len() {
        assert!(!mesh.noticed(node, |notice| matches!(notice, Notice::Forked { .. })));
    }
}
