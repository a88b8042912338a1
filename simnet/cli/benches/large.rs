//! What a large VO costs one node, without a network: bytes and round trips of a newcomer, its CPU, a start
//! from the store and the memory behind it, what an idle hour makes durable, and how long the longest step
//! is when a policy or a charter changes.
//!
//! `cargo bench -p simnet --bench large`: 200 sites × 90 days × 50 accounts for the newcomer, and 20,000 accounts
//! with 880,000 cells for the changes; 150,000 made-up accounts of one member, of which one changes. Steps are
//! measured in CPU time of the thread that takes them, so that a busy machine does not lengthen them. Goals: 6 bytes
//! a cell, 40 round trips one after the other and half a second for a newcomer; no step above 10 ms; nothing durable
//! in an idle hour. The start is another process's, so that its memory is of nothing else.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use fairmesh_experiments::scale::{self, ScaleSpec};
use fairmesh_model::{HistoryRule, Incarnation, Millis, MonoTime, Now, Weight, cbor};
use fairmesh_site::{Effect, Event, Row, Site, SiteConfig, Table, Timing, Write};
use rustix::time::{ClockId, clock_gettime};
use serde_bytes::{ByteBuf, Bytes};
use simnet::vo::{DAY, HOUR, OwnerSpec, START, Vo, VoSpec, job, site_config, site_id, site_key};

/// The node's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rows of a store.
type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// Names the file of rows that a process is to start from.
const ROWS_IN: &str = "FAIRMESH_BENCH_ROWS";

/// The node that holds everything, and the one that comes new. Members that publish follow.
const HOLDER: usize = 0;
const NEWCOMER: usize = 1;
const FIRST_MEMBER: usize = 2;

fn main() {
    if let Some(file) = std::env::var_os(ROWS_IN) {
        return Grid::newcomers().start(Path::new(&file));
    }
    made_up("within its capacity", 1);
    made_up("beyond its capacity", 100);
    let grid = Grid::new(200, 20_000, 100, 44);
    let (holder, _) = grid.filled_holder();
    grid.changes(holder);
    let grid = Grid::newcomers();
    let (holder, rows) = grid.filled_holder();
    grid.newcomer(holder);
    grid.start_elsewhere(&rows);
    spread();
}

/// A member with many made-up accounts publishes them, of a job of so many cores each, and then a change of one: the
/// steps in which another node takes that.
fn made_up(what: &str, cores: u32) {
    let grid = Grid::new(1, 10, 1, 1);
    let (mut holder, mut liar) = (grid.node(HOLDER, true), grid.node(FIRST_MEMBER, true));
    let mut publish = |first: usize, count: usize| {
        let record = |account: usize| {
            let (end, name) = (START.before(HOUR), format!("{first} {account}"));
            let ran = (end.before(Millis(1_000)), end);
            (
                job(
                    name,
                    "grid",
                    ("g", &format!("made-up-{account}")),
                    ran,
                    cores,
                ),
                None,
            )
        };
        let records = (0..count).map(record).collect();
        liar.handle(Event::Report { ticket: 1, records });
        liar.tick_for(Millis(200));
        // The head before is paid by then.
        holder.tick_for(Millis(20_000));
        holder.forget_times();
        connect(&mut holder, &mut liar);
        // What the head changed is counted.
        holder.tick_for(Millis(500));
        disconnect(&mut holder, &mut liar);
        println!(
            "{count} rows of a member with 150,000 accounts {what}: the longest step {:.1} ms, all {:.1} ms, {:.1} ms on another thread; {} heads taken",
            holder.longest_us as f64 / 1_000.0,
            holder.all_us as f64 / 1_000.0,
            holder.beside_us as f64 / 1_000.0,
            holder.site.stats().heads_taken,
        );
    };
    publish(0, 150_000);
    for first in 1..4 {
        publish(first, 1);
    }
}

/// How far a change travels, and how fast that is simulated, of the table of goals.
fn spread() {
    let mut speeds = Vec::new();
    let hops = [100, 1_000].map(|sites| {
        let (burst, cells, seed) = (sites / 10, 100, 1);
        let spec = ScaleSpec {
            sites,
            burst,
            cells,
            seed,
        };
        let before = cpu_us();
        let measured = scale::measure(&spec);
        let node_seconds = sites as f64 * measured.simulated_s;
        let speed = node_seconds * 1e6 / (cpu_us() - before) as f64;
        let idle = 60.0 * sites as f64 / measured.idle_wall_s;
        speeds.push(format!(
            "{speed:.0} at {sites} from the founding on, {idle:.0} in an idle minute"
        ));
        let (hops, most) = (measured.single.hops_max, measured.hops_goal());
        format!("{hops} at {sites} (at most {most:.1})")
    });
    let what = "time for all of N sites to hold a change, simulated";
    fairmesh_needs::say_row(what, &hops.join(", "));
    let what = "simulator, node-seconds a CPU-second";
    fairmesh_needs::say_row(what, &speeds.join("; "));
}

/// A VO whose members each have used all their accounts on every day.
struct Grid {
    vo: Vo,
    members: usize,
    accounts: usize,
    of_each: usize,
    days: u64,
}

/// A site, and the moment up to which its time has come.
struct Node {
    index: usize,
    site: Site,
    mono: u64,
    /// The longest step so far, and all of them, microseconds of CPU.
    longest_us: u64,
    all_us: u64,
    /// What it handed out to be done on another thread.
    beside_us: u64,
    /// Changes that had to be durable.
    durable: u64,
    rows: Rows,
}

impl Node {
    fn handle(&mut self, event: Event) -> Vec<Effect> {
        self.mono += 1;
        let before = cpu_us();
        let effects = self.site.handle(now(self.mono), event);
        let took = cpu_us() - before;
        self.longest_us = self.longest_us.max(took);
        self.all_us += took;
        let mut said = Vec::new();
        for effect in effects {
            match effect {
                Effect::Persist(writes) => {
                    self.durable += 1;
                    self.keep(writes);
                }
                Effect::Work(work) => {
                    let before = cpu_us();
                    let done = work.run();
                    self.beside_us += cpu_us() - before;
                    said.extend(self.handle(Event::Done(done)));
                }
                effect => said.push(effect),
            }
        }
        said
    }

    fn keep(&mut self, writes: Vec<Write>) {
        for Write { table, key, value } in writes {
            match value {
                Some(value) => self.rows.insert((table, key), value),
                None => self.rows.remove(&(table, key)),
            };
        }
    }

    /// Lets it take in what has come.
    fn take_in(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while self.site.is_taking_in() {
            effects.extend(self.handle(Event::Tick));
        }
        effects
    }

    /// Lets time pass, as its driver does: as soon as it wants to be woken, until it has been quiet for
    /// so long.
    fn tick_for(&mut self, time: Millis) -> Vec<Effect> {
        let end = self.mono + time.0;
        let mut effects = Vec::new();
        loop {
            let next = self.site.next_wakeup(MonoTime(self.mono)).0;
            if next > end {
                self.mono = end;
                return effects;
            }
            self.mono = next.max(self.mono);
            effects.extend(self.handle(Event::Tick));
        }
    }

    fn forget_times(&mut self) {
        (self.longest_us, self.all_us, self.beside_us) = (0, 0, 0);
    }
}

/// What two nodes said to each other.
#[derive(Debug, Default)]
struct Talk {
    /// Answers that the first one waited for, one after the other.
    round_trips: u64,
    requests: u64,
    asked_bytes: u64,
    answered_bytes: u64,
}

/// Carries what `a` and `b` ask each other until neither has anything to ask; what `a` asks is counted.
fn converse(a: &mut Node, b: &mut Node, mut from_a: Vec<Effect>, mut from_b: Vec<Effect>) -> Talk {
    let mut talk = Talk::default();
    loop {
        let asked = asks(&from_a);
        let answers = carry(a.index, b, &asked);
        let asked_back = asks(&from_b);
        let answers_back = carry(b.index, a, &asked_back);
        if asked.is_empty() && asked_back.is_empty() {
            return talk;
        }
        talk.round_trips += u64::from(!asked.is_empty());
        talk.requests += asked.len() as u64;
        talk.asked_bytes += asked
            .iter()
            .map(|(_, bytes)| bytes.len() as u64)
            .sum::<u64>();
        let bytes = answers.answers.iter().map(|(_, bytes)| bytes.len() as u64);
        talk.answered_bytes += bytes.sum::<u64>();
        from_b = answers.effects;
        from_a = answers_back.effects;
        from_a.extend(take(b.index, a, answers.answers));
        from_b.extend(take(a.index, b, answers_back.answers));
    }
}

struct Answers {
    answers: Vec<(u64, Vec<u8>)>,
    effects: Vec<Effect>,
}

fn asks(effects: &[Effect]) -> Vec<(u64, Vec<u8>)> {
    let asks = effects.iter().filter_map(|effect| match effect {
        Effect::Ask { id, bytes, .. } => Some((*id, bytes.clone())),
        _ => None,
    });
    asks.collect()
}

/// Hands requests to a node, and gives what it answers and does besides.
fn carry(from: usize, to: &mut Node, asked: &[(u64, Vec<u8>)]) -> Answers {
    let mut answers = Answers {
        answers: Vec::new(),
        effects: Vec::new(),
    };
    for (id, bytes) in asked {
        let (from, bytes, channel) = (site_id(from), bytes.clone(), *id);
        for effect in to.handle(Event::Requested {
            from,
            bytes,
            channel,
        }) {
            match effect {
                Effect::Answer { channel, bytes } => answers.answers.push((channel, bytes)),
                other => answers.effects.push(other),
            }
        }
    }
    answers
}

fn take(from: usize, to: &mut Node, answers: Vec<(u64, Vec<u8>)>) -> Vec<Effect> {
    let mut effects = Vec::new();
    for (id, bytes) in answers {
        effects.extend(to.handle(Event::Answered {
            from: site_id(from),
            id,
            bytes: Some(bytes),
        }));
    }
    effects.extend(to.take_in());
    effects
}

impl Grid {
    fn newcomers() -> Self {
        Self::new(200, 10_000, 50, 90)
    }

    fn new(members: usize, accounts: usize, of_each: usize, days: u64) -> Self {
        let spec = VoSpec {
            members: (0..members + FIRST_MEMBER)
                .map(|site| (site, 1_000))
                .collect(),
            shares: (0..accounts)
                .map(|account| (format!("/g/{}", user(account)), Weight::HUNDRED))
                .collect(),
            history: HistoryRule::HalfLife {
                windows: 7 * 24,
                horizon: 100 * 24,
            },
            ..VoSpec::small("grid", 1)
        };
        let mut spec = spec;
        spec.shares.insert(0, ("/g".to_owned(), Weight::HUNDRED));
        Self {
            vo: Vo::found(0, spec).expect("a valid VO"),
            members,
            accounts,
            of_each,
            days,
        }
    }

    fn config(&self, index: usize) -> SiteConfig {
        let owner = OwnerSpec {
            timing: Timing {
                publish: Millis(100),
                heartbeat: DAY,
                ..Timing::default()
            },
            ..OwnerSpec::default()
        };
        site_config(index, std::slice::from_ref(&self.vo), &owner)
    }

    fn node(&self, index: usize, is_founded: bool) -> Node {
        let seed = index as u64;
        let incarnation = Incarnation(1);
        let site = Site::new(
            self.config(index),
            site_key(index),
            incarnation,
            seed,
            now(0),
        );
        let mut node = Node {
            index,
            site,
            mono: 0,
            longest_us: 0,
            all_us: 0,
            beside_us: 0,
            durable: 0,
            rows: BTreeMap::new(),
        };
        if is_founded {
            for bytes in [self.vo.charter.bytes(), self.vo.policy.bytes()] {
                node.handle(Event::Publish {
                    ticket: 0,
                    bytes: bytes.to_vec(),
                    by: String::new(),
                });
            }
        }
        node
    }

    /// A node that holds what all members have published, and the rows of its store.
    fn filled_holder(&self) -> (Node, Rows) {
        let mut holder = self.node(HOLDER, true);
        for member in 0..self.members {
            let mut node = self.node(FIRST_MEMBER + member, true);
            node.handle(Event::Report {
                ticket: 1,
                records: self.records(member),
            });
            connect(&mut holder, &mut node);
            node.tick_for(Millis(1_000));
            disconnect(&mut holder, &mut node);
            connect(&mut holder, &mut node);
            disconnect(&mut holder, &mut node);
        }
        let (heads, cells) = (holder.site.stats().heads_taken, self.cells());
        println!(
            "{} sites, {} accounts, {cells} cells; the holder took {heads} heads",
            self.members, self.accounts
        );
        let rows = std::mem::take(&mut holder.rows);
        (holder, rows)
    }

    fn cells(&self) -> u64 {
        self.members as u64 * self.of_each as u64 * self.days
    }

    /// One job of each account of a member on each day, none of them like another.
    fn records(
        &self,
        member: usize,
    ) -> Vec<(fairmesh_model::UsageRecord, Option<fairmesh_site::JobMark>)> {
        let mut records = Vec::new();
        for day in 0..self.days {
            for account in 0..self.of_each {
                let whose = (member * self.of_each + account) % self.accounts;
                let name = format!("{member} {day} {account}");
                let number =
                    (member as u64 * self.days + day) * self.of_each as u64 + account as u64;
                let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let ran = Millis(60_000 + (mixed >> 20) % 3_540_000);
                let start = START.before(DAY.times(day)).before(HOUR.times(2));
                let record = job(
                    name,
                    "grid",
                    ("g", &user(whose)),
                    (start, start.after(ran)),
                    4,
                );
                records.push((record, None));
            }
        }
        records
    }

    fn newcomer(&self, mut holder: Node) {
        let mut newcomer = self.node(NEWCOMER, false);
        newcomer.mono = holder.mono;
        holder.forget_times();
        let talk = connect(&mut newcomer, &mut holder);
        let cells = self.cells() as f64;
        let agree = newcomer.site.holdings() == holder.site.holdings();
        println!(
            "newcomer: agrees {agree}; {} bytes asked, {} answered: {:.2} bytes a cell; {} requests in {} \
             round trips; CPU {} ms of its own, longest step {:.1} ms; {} ms of the other's, longest \
             step {:.1} ms",
            talk.asked_bytes,
            talk.answered_bytes,
            (talk.asked_bytes + talk.answered_bytes) as f64 / cells,
            talk.requests,
            talk.round_trips,
            newcomer.all_us / 1_000,
            newcomer.longest_us as f64 / 1_000.0,
            holder.all_us / 1_000,
            holder.longest_us as f64 / 1_000.0,
        );
        fairmesh_needs::say_row(
            "newcomer, 0.9 M cells",
            &format!(
                "{:.2}, {}, {:.2} s; without a network",
                (talk.asked_bytes + talk.answered_bytes) as f64 / cells,
                talk.round_trips,
                newcomer.all_us as f64 / 1e6
            ),
        );
        let (from_a, from_b) = (newcomer.tick_for(HOUR), holder.tick_for(HOUR));
        converse(&mut newcomer, &mut holder, from_a, from_b);
        self.idle(newcomer, holder);
    }

    /// Has another process start from these rows.
    fn start_elsewhere(&self, rows: &Rows) {
        let file = std::env::temp_dir().join(format!("fairmesh-rows-{}", std::process::id()));
        let rows: Vec<_> = rows
            .iter()
            .map(|((table, key), value)| (*table as u8, Bytes::new(key), Bytes::new(value)))
            .collect();
        std::fs::write(&file, cbor::to_vec(&rows)).expect("there is room");
        let mut other = Command::new(std::env::current_exe().expect("it runs"));
        let ended = other.env(ROWS_IN, &file).status().expect("it starts");
        std::fs::remove_file(&file).expect("it was just written");
        assert!(ended.success());
    }

    fn start(&self, file: &Path) {
        let rows = std::fs::read(file).expect("it was just written");
        let rows: Vec<(u8, ByteBuf, ByteBuf)> =
            cbor::from_slice(&rows, usize::MAX).expect("as it was written");
        let bytes: usize = rows
            .iter()
            .map(|(_, key, value)| key.len() + value.len())
            .sum();
        let table_of = |number| Table::ALL.into_iter().find(|table| *table as u8 == number);
        let rows: Vec<Row> = rows
            .into_iter()
            .map(|(table, key, value)| {
                let table = table_of(table).expect("a table");
                (table, key.into_vec(), value.into_vec())
            })
            .collect();
        let (count, before) = (rows.len(), cpu_us());
        let config = self.config(HOLDER);
        let site = Site::restore(config, site_key(HOLDER), Incarnation(2), 7, now(0), rows);
        println!(
            "start from {count} rows, {:.1} bytes a cell: CPU {} ms; {} heads; the process has {:.0} bytes of \
             memory a cell, {:.0} at its peak",
            bytes as f64 / self.cells() as f64,
            (cpu_us() - before) / 1_000,
            site.vectors().values().map(BTreeMap::len).sum::<usize>(),
            memory("VmRSS") / self.cells() as f64,
            memory("VmHWM") / self.cells() as f64,
        );
    }

    /// Two nodes for an hour in which nothing happens.
    fn idle(&self, mut a: Node, mut b: Node) {
        (a.durable, b.durable) = (0, 0);
        let mut talked = 0;
        for _ in 0..360 {
            let (from_a, from_b) = (a.tick_for(Millis(10_000)), b.tick_for(Millis(10_000)));
            let talk = converse(&mut a, &mut b, from_a, from_b);
            talked += talk.asked_bytes + talk.answered_bytes;
        }
        println!(
            "an idle hour: {} and {} durable changes; {talked} bytes of probes",
            a.durable, b.durable
        );
    }

    fn changes(mut self, mut holder: Node) {
        let policy = self.vo.next_policy(|policy| {
            let first = policy.shares.values_mut().next_back();
            first.expect("accounts").share = Weight::whole(50);
        });
        let charter = self.vo.next_charter(|charter| charter.sites[9].cores = 900);
        for (what, bytes) in [("policy", policy), ("charter", charter)] {
            let bytes = bytes.expect("valid");
            holder.forget_times();
            let by = String::new();
            holder.handle(Event::Publish {
                ticket: 9,
                bytes,
                by,
            });
            let first = holder.longest_us;
            holder.tick_for(Millis(1_000));
            println!(
                "{what} changes: the steps that take it {:.1} ms; the longest {:.1} ms, all {} ms; beside \
                 the site {} ms",
                first as f64 / 1_000.0,
                holder.longest_us as f64 / 1_000.0,
                holder.all_us / 1_000,
                holder.beside_us / 1_000,
            );
            if what == "policy" {
                let longest = holder.longest_us as f64 / 1_000.0;
                let row = "policy change with 20,000 entries and 880,000 cells";
                let measured = format!("{longest:.1} ms, of the site without a node");
                fairmesh_needs::say_row(row, &measured);
            }
        }
    }
}

fn connect(a: &mut Node, b: &mut Node) -> Talk {
    b.mono = b.mono.max(a.mono);
    a.mono = b.mono;
    let from_a = a.handle(Event::Connected(site_id(b.index)));
    let from_b = b.handle(Event::Connected(site_id(a.index)));
    converse(a, b, from_a, from_b)
}

fn disconnect(a: &mut Node, b: &mut Node) {
    a.handle(Event::Disconnected(site_id(b.index)));
    b.handle(Event::Disconnected(site_id(a.index)));
}

fn user(account: usize) -> String {
    format!("user{account:05}")
}

fn now(mono: u64) -> Now {
    Now {
        mono: MonoTime(mono),
        wall: START.after(Millis(mono)),
    }
}

/// A figure of this process that Linux tells, bytes.
fn memory(of: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells it");
    let line = status.lines().find_map(|line| line.strip_prefix(of));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<f64>().ok())
        .expect("it is there")
        * 1_024.0
}

/// CPU time of this thread, microseconds.
fn cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}
