//! Ledgers that tell each other of rights: `fairmesh_quota`'s own code, under a plain network.
//!
//! What a real site does around its ledger is done here in its rhythm: a job that lacks rights waits two seconds
//! for them, a member is asked again after five, a row that sends rights is told within a second, and what it sends
//! is taken when the others have witnessed it, a round trip later. What differs:
//! a ledger looks at what it lacks each five minutes instead of each second (a job that lacks rights asks at once
//! all the same), and other rows are told each quarter of an hour: months would take days to compute otherwise.
//!
//! Invariant: a message arrives whole, after the latency, unless its two ends are cut off from each other when
//! it is sent or when it arrives; when a cut ends, all rows are told.
//! Deliberately not here: heads, stores, crashes and lies (`simnet check`, and the tests of `fairmesh-quota`).

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::{
    AccountPath, Allocation, AllocationSlice, CoreMillis, Factor, Incarnation, JobKey, Millis,
    QuotaMode, Role, Signed, SigningKey, SiteId, VoId, WallTime,
};
use fairmesh_quota::{Grants, HoldRequest, Ledger, Row, SliceId, Verdict, Want};

use super::credit::{Ask, Credit, Decided, Spent};
use simnet::queue::Queue;
use simnet::vo::{HOUR, START, allocation, path, site_id};

/// From one site to another.
const LATENCY: Millis = Millis(50);

/// A ledger looks at the time, and at what it lacks.
const TICK: Millis = Millis::from_secs(300);

/// Rows that nobody waits for are told.
const TELL: Millis = Millis::from_secs(900);

/// Rows that send rights are told.
const TELL_SOON: Millis = Millis::from_secs(1);

/// How long a job waits for rights.
const WAIT: Millis = Millis::from_secs(2);

/// Before this a member is not asked again for rights to a slice.
const ASK_AGAIN: Millis = Millis::from_secs(5);

/// Asking one member whether it witnesses what was sent.
const WITNESS_BYTES: u64 = 200;

/// The longest that a job waits in its queue, and the margin, beside its run time.
const HOLD_LIVES: Millis = Millis(30 * 24 * HOUR.0 + 600_000);

/// What one project is granted.
#[derive(Debug, Clone)]
pub struct Grant {
    /// In which parts.
    pub slices: Vec<AllocationSlice>,
    /// How strict.
    pub mode: QuotaMode,
    /// The most that all sites together may owe.
    pub overdraft_max: CoreMillis,
    /// What is held of what a job may cost.
    pub hold_factor: Factor,
}

impl Grant {
    /// So many core-milliseconds in one slice, from the beginning on.
    pub fn whole(amount: u64, time: Millis, mode: QuotaMode) -> Self {
        let slice = AllocationSlice {
            amount: CoreMillis(amount),
            start: START,
            end: START.after(time),
        };
        Self {
            slices: vec![slice],
            mode,
            overdraft_max: CoreMillis(0),
            hold_factor: Factor::ONE,
        }
    }
}

/// What happens at a moment.
enum Event {
    /// A site looks at the time.
    Tick(usize),
    /// A site tells its rows that have changed.
    Tell(usize),
    /// A request arrives.
    Want { from: usize, to: usize, want: Want },
    /// Rows arrive.
    Rows {
        from: usize,
        to: usize,
        rows: Vec<(SliceId, Row)>,
    },
    /// The others have witnessed what a site was sent.
    Confirmed(usize),
    /// Who still waits at a site has waited for long enough.
    Decide(usize),
}

struct Node {
    ledger: Ledger,
    untold: BTreeSet<SliceId>,
    /// When it tells next; it tells nothing before it has changed something.
    tells_at: Option<WallTime>,
    asked: BTreeMap<(SiteId, SliceId), WallTime>,
    waiting: Vec<(HoldRequest, WallTime)>,
}

/// The ledgers of all sites.
pub struct Mesh {
    nodes: Vec<Node>,
    ids: Vec<SiteId>,
    paths: Vec<AccountPath>,
    index_of: BTreeMap<SiteId, usize>,
    groups: Vec<usize>,
    queue: Queue<WallTime, Event>,
    decided: Vec<Decided>,
    /// Rights that were sent, and how often.
    pub transfers: u64,
    /// Requests for rights.
    pub requests: u64,
    /// Bytes of rows and requests.
    pub bytes: u64,
}

/// The path of a project.
fn project_path(project: usize) -> AccountPath {
    path(&format!("/P{}", project + 1))
}

fn grants(of: &[Grant], sites: usize, weights: &[u64]) -> Grants {
    let signer = SigningKey::from_secret(&[9; 32]);
    let role = Role::single(signer.key_id());
    let mut grants = Grants::default();
    for (project, grant) in of.iter().enumerate() {
        let body = Allocation {
            split: (0..sites)
                .map(|site| (site_id(site), weights[site]))
                .collect(),
            mode: Some(grant.mode),
            overdraft_max: grant.overdraft_max,
            hold_factor: grant.hold_factor,
            ..allocation(
                VoId::from_bytes([7; 32]),
                project_path(project),
                grant.slices.clone(),
                sites,
            )
        };
        let signed = Signed::sign(body, &[&signer]).expect("a valid allocation");
        let verified = signed.verify(&[&role]).expect("signed by its role");
        grants.adopt(&verified).expect("nothing else is in force");
    }
    grants
}

impl Mesh {
    /// Sites that were granted this, split by `weights`.
    pub fn new(of: &[Grant], weights: &[u64]) -> Self {
        let sites = weights.len();
        let ids: Vec<SiteId> = (0..sites).map(site_id).collect();
        let members: BTreeSet<SiteId> = ids.iter().copied().collect();
        let grants = grants(of, sites, weights);
        let node = |site: usize| Node {
            ledger: Ledger::new(ids[site], members.clone(), grants.clone()),
            untold: BTreeSet::new(),
            tells_at: None,
            asked: BTreeMap::new(),
            waiting: Vec::new(),
        };
        let mut mesh = Self {
            nodes: (0..sites).map(node).collect(),
            index_of: ids.iter().copied().zip(0..).collect(),
            ids,
            paths: (0..of.len()).map(project_path).collect(),
            groups: vec![0; sites],
            queue: Queue::default(),
            decided: Vec::new(),
            transfers: 0,
            requests: 0,
            bytes: 0,
        };
        for site in 0..sites {
            // Sites do not keep step.
            let first = START.after(Millis(TICK.0 * site as u64 / sites as u64));
            mesh.queue.push(first, Event::Tick(site));
        }
        mesh
    }

    /// A site's ledger.
    pub fn ledger(&self, site: usize) -> &Ledger {
        &self.nodes[site].ledger
    }

    /// What can still be held of each slice of all projects, at all sites together, whether it has begun or not.
    pub fn unspent(&self) -> Vec<(u64, AllocationSlice)> {
        let grants = self.nodes[0].ledger.grants();
        let slices = self.paths.iter().flat_map(|path| grants.slices_of(path));
        let left = |id| {
            self.nodes
                .iter()
                .map(|node| node.ledger.spendable(id))
                .sum()
        };
        slices.map(|(id, slice)| (left(id), slice)).collect()
    }

    fn handle(&mut self, now: WallTime, event: Event) {
        match event {
            Event::Tick(site) => self.tick(now, site),
            Event::Tell(site) => self.tell(now, site),
            Event::Want { from, to, want } if self.groups[from] == self.groups[to] => {
                let asker = self.ids[from];
                let given = self.nodes[to].ledger.give(now, asker, &want);
                self.transfers += u64::from(given.0 > 0);
                self.changed(now, to, if given.0 > 0 { TELL_SOON } else { TELL });
            }
            Event::Rows { from, to, rows } if self.groups[from] == self.groups[to] => {
                let ledger = &mut self.nodes[to].ledger;
                ledger.receive(self.ids[from], Incarnation(1), rows);
                if !ledger.unconfirmed().is_empty() {
                    let others = self
                        .groups
                        .iter()
                        .filter(|group| **group == self.groups[to]);
                    self.bytes += WITNESS_BYTES * (others.count() as u64).saturating_sub(2);
                    // Its question arrives behind the row, which is told to all at once.
                    self.queue
                        .push(now.after(LATENCY).after(LATENCY), Event::Confirmed(to));
                }
                self.changed(now, to, TELL);
                self.decide_waiting(now, to);
            }
            Event::Confirmed(site) => {
                let ledger = &mut self.nodes[site].ledger;
                let offers = ledger.unconfirmed();
                offers.iter().for_each(|offer| ledger.confirm(offer));
                self.changed(now, site, TELL);
                self.decide_waiting(now, site);
            }
            Event::Want { .. } | Event::Rows { .. } => {}
            Event::Decide(site) => self.decide_waiting(now, site),
        }
    }

    fn tick(&mut self, now: WallTime, site: usize) {
        self.queue.push(now.after(TICK), Event::Tick(site));
        let groups = &self.groups;
        let index_of = &self.index_of;
        let node = &mut self.nodes[site];
        node.ledger.tick(now);
        node.asked.retain(|_, at| now < at.after(ASK_AGAIN));
        let asked = &node.asked;
        let can_hear = |other: SiteId, slice| {
            groups[index_of[&other]] == groups[site] && !asked.contains_key(&(other, slice))
        };
        let wants = node.ledger.wants(now, can_hear);
        self.send_wants(now, site, wants);
        self.changed(now, site, TELL);
    }

    fn send_wants(&mut self, now: WallTime, site: usize, wants: Vec<(SiteId, Want)>) {
        for (to, want) in wants {
            self.nodes[site].asked.insert((to, want.slice), now);
            self.requests += 1;
            self.bytes += 32 + SliceId::BYTES as u64 + 16;
            let to = self.index_of[&to];
            let from = site;
            self.queue
                .push(now.after(LATENCY), Event::Want { from, to, want });
        }
    }

    /// Remembers what a site has to tell, and when it does.
    fn changed(&mut self, now: WallTime, site: usize, within: Millis) {
        let node = &mut self.nodes[site];
        node.untold.extend(node.ledger.take_changes().rows);
        let at = now.after(within);
        if !node.untold.is_empty() && node.tells_at.is_none_or(|planned| at < planned) {
            node.tells_at = Some(at);
            self.queue.push(at, Event::Tell(site));
        }
    }

    fn tell(&mut self, now: WallTime, site: usize) {
        let node = &mut self.nodes[site];
        if node.tells_at != Some(now) {
            return;
        }
        node.tells_at = None;
        let untold = std::mem::take(&mut node.untold);
        self.tell_rows(now, site, untold);
    }

    fn tell_rows(&mut self, now: WallTime, site: usize, slices: BTreeSet<SliceId>) {
        let ledger = &self.nodes[site].ledger;
        let row = |id: SliceId| Some((id, ledger.own_row(id)?.clone()));
        let rows: Vec<_> = slices.into_iter().filter_map(row).collect();
        let size = |(_, row): &(SliceId, Row)| (SliceId::BYTES + row.to_bytes().len()) as u64;
        let size: u64 = rows.iter().map(size).sum();
        for to in (0..self.nodes.len()).filter(|to| *to != site) {
            if self.groups[to] == self.groups[site] {
                self.bytes += size;
                let (from, rows) = (site, rows.clone());
                self.queue
                    .push(now.after(LATENCY), Event::Rows { from, to, rows });
            }
        }
    }

    /// Decides about a job, or asks others for what it lacks; whether it is decided.
    fn decide(&mut self, now: WallTime, site: usize, request: &HoldRequest, waited: bool) -> bool {
        let groups = &self.groups;
        let index_of = &self.index_of;
        let node = &mut self.nodes[site];
        let mut answer = node.ledger.hold(now, request);
        let mut wants = Vec::new();
        if answer.verdict == Verdict::Waiting {
            let asked = &node.asked;
            let can_hear = |other: SiteId, slice| {
                let at = asked.get(&(other, slice));
                groups[index_of[&other]] == groups[site]
                    && at.is_none_or(|at| now >= at.after(ASK_AGAIN))
            };
            let account = answer.account.clone().expect("each project has credit");
            wants = node.ledger.ask(now, &account, answer.short, can_hear);
            if wants.is_empty() && !waited {
                let request = HoldRequest {
                    may_wait: false,
                    ..request.clone()
                };
                answer = node.ledger.hold(now, &request);
            }
        }
        self.send_wants(now, site, wants);
        self.changed(now, site, TELL);
        if answer.verdict == Verdict::Waiting {
            return false;
        }
        self.decided.push(Decided {
            job: request.job.clone(),
            verdict: answer.verdict,
            has_waited: waited,
        });
        true
    }

    fn decide_waiting(&mut self, now: WallTime, site: usize) {
        for (mut request, until) in std::mem::take(&mut self.nodes[site].waiting) {
            request.may_wait = now < until;
            if !self.decide(now, site, &request, true) {
                self.nodes[site].waiting.push((request, until));
            }
        }
    }
}

impl Credit for Mesh {
    fn next_at(&self) -> Option<WallTime> {
        self.queue.next_at()
    }

    fn advance(&mut self, now: WallTime) {
        while let Some((at, event)) = self.queue.pop_due(now) {
            self.handle(at, event);
        }
    }

    fn ask(&mut self, now: WallTime, ask: Ask) {
        let request = HoldRequest {
            job: ask.job,
            user: self.paths[ask.project].clone(),
            account: None,
            charge: ask.charge,
            price: ask.price,
            least: Factor::ONE,
            importance: Default::default(),
            until: now.after(HOLD_LIVES).after(Millis(ask.charge.0)),
            owner: None,
            is_exempt: false,
            may_wait: true,
            is_idle: ask.is_idle,
        };
        if !self.decide(now, ask.site, &request, false) {
            let until = now.after(WAIT);
            self.nodes[ask.site].waiting.push((request, until));
            self.queue.push(until, Event::Decide(ask.site));
        }
    }

    fn decided(&mut self) -> Vec<Decided> {
        std::mem::take(&mut self.decided)
    }

    fn ended(&mut self, now: WallTime, site: usize, job: &JobKey, charge: CoreMillis) {
        // Its mark says whose it was, and at which price it was held.
        let nobody = AccountPath::root();
        let ledger = &mut self.nodes[site].ledger;
        let cost = ledger.mark(job).map_or(charge, |mark| mark.cost(charge));
        let committed = ledger.commit(now, job, cost, &nobody);
        committed.expect("it was held");
        self.changed(now, site, TELL);
    }

    fn cut(&mut self, now: WallTime, groups: &[usize]) {
        self.groups = groups.to_vec();
        for site in 0..groups.len() {
            let all = self.nodes[site].ledger.own_rows().map(|(id, _)| id);
            let all: BTreeSet<SliceId> = all.collect();
            self.tell_rows(now, site, all);
        }
    }

    fn spent(&self, now: WallTime, project: usize) -> Spent {
        let account = &self.paths[project];
        let grants = self.nodes[0].ledger.grants();
        let mut spent = Spent::default();
        for (id, slice) in grants.slices_of(account) {
            spent.granted += u128::from(slice.amount.0);
            for node in &self.nodes {
                let row = node.ledger.own_row(id);
                spent.used += row.map_or(0, |row| u128::from(row.used()));
                spent.overdraft += row.map_or(0, |row| u128::from(row.overdraft()));
                if slice.start <= now && now < slice.end {
                    spent.spendable += u128::from(node.ledger.spendable(id));
                }
            }
        }
        spent
    }
}
