//! One fault at a time: it is made, the nodes that can know of it report it, it is fixed, and all is clear again.
//!
//! Invariant: a fault begins when no node has a warning. A row is good if each node that can know reports it in time, with
//! the expected message before any other warning, no other node reports anything, and the fix clears all of it in time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::mesh::{Mesh, name};
use super::watch::{self, LOOK_EVERY, Notice};

/// Within which a fault is to be reported, and to be clear after its fix.
const REPORT_MAX: Duration = Duration::from_secs(120);
const CLEAR_MAX: Duration = Duration::from_secs(60);

/// How long nodes are watched after a fault was reported: others must not report anything either.
const WATCH_ON: Duration = Duration::from_secs(10);

/// How long a node that a fault starts again may be away.
const RESTART_MAX: Duration = Duration::from_secs(20);

/// How long the mesh may take to be clear before the next fault. It is no measurement.
const SETTLE_MAX: Duration = Duration::from_secs(300);

type Step = fn(&mut Mesh) -> anyhow::Result<()>;

/// Where a report is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A warning or an error of `status`, or an information that ends with the fault.
    Status,
    /// An information of `status` that stays for a day: it is over, and there is nothing to do.
    Event,
    /// A finding of `doctor`.
    Doctor,
    /// A line of the node's log.
    Log,
    /// What a command answers at once.
    Command,
}

/// What some nodes report.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) at: &'static [usize],
    pub(super) place: Place,
    /// Any of these; empty for a log and a command.
    pub(super) codes: &'static [&'static str],
    /// Which the message contains.
    pub(super) text: &'static str,
}

/// A fault by its name.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// What is done, for the table.
    pub(super) done: &'static str,
    /// Before it, while all stays well.
    pub(super) prepare: Step,
    pub(super) inject: Step,
    pub(super) fix: Step,
    pub(super) reports: &'static [Report],
    /// Nodes that may report the same, depending on who has called whom.
    pub(super) may: &'static [usize],
    /// Nodes that the fault stops or starts again: others may report meanwhile that these peers are away.
    pub(super) restarts: &'static [usize],
}

/// How a fault went.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) fault: &'static Fault,
    /// Who reported it, in words.
    pub(super) who: String,
    pub(super) message: String,
    pub(super) reported: Option<Duration>,
    pub(super) cleared: Option<Duration>,
    /// What was not as it should be.
    pub(super) wrong: Vec<String>,
}

/// Nothing.
pub(super) fn nothing(_: &mut Mesh) -> anyhow::Result<()> {
    Ok(())
}

impl Report {
    /// A notice of `status` with one of these codes.
    pub(super) const fn status(
        at: &'static [usize],
        codes: &'static [&'static str],
        text: &'static str,
    ) -> Self {
        let place = Place::Status;
        Self {
            at,
            place,
            codes,
            text,
        }
    }

    /// Words at another place.
    pub(super) const fn words(place: Place, at: &'static [usize], text: &'static str) -> Self {
        Self {
            at,
            place,
            codes: &[],
            text,
        }
    }

    /// An event with this code.
    pub(super) const fn event(
        at: &'static [usize],
        codes: &'static [&'static str],
        text: &'static str,
    ) -> Self {
        let place = Place::Event;
        Self {
            place,
            ..Self::status(at, codes, text)
        }
    }

    fn is_met_by(&self, notice: &Notice) -> bool {
        let has_code = self.codes.contains(&notice.code.as_str());
        let is_right = match self.place {
            Place::Status => has_code,
            Place::Event => has_code && notice.is_info,
            Place::Doctor | Place::Log | Place::Command => true,
        };
        is_right && notice.text.contains(self.text)
    }

    fn is_in_status(&self) -> bool {
        matches!(self.place, Place::Status | Place::Event)
    }
}

/// What was seen of each node while a fault lasts.
#[derive(Debug, Default)]
struct Seen {
    /// The first message of each node, and when.
    first: BTreeMap<usize, (Notice, Duration)>,
}

impl Fault {
    /// Makes the fault and fixes it.
    pub(super) fn run(&'static self, mesh: &mut Mesh) -> anyhow::Result<Row> {
        (self.prepare)(mesh).context("prepare")?;
        if let Err(why) = watch::await_clear(mesh, SETTLE_MAX)? {
            bail!("the mesh is not clear before {}: {why}", self.name);
        }
        let lengths: Vec<usize> = (0..mesh.sites.len())
            .map(|site| watch::log_length(&mesh.log(site)))
            .collect();
        let began = Instant::now();
        (self.inject)(mesh).context("inject")?;
        let mut seen = Seen::default();
        let mut all_at = None;
        loop {
            mesh.tick()?;
            self.look(mesh, &lengths, began, &mut seen)?;
            let elapsed = began.elapsed();
            if all_at.is_none() && self.is_reported(&seen) {
                all_at = Some(elapsed);
            }
            match all_at {
                Some(at) if elapsed > at + WATCH_ON => break,
                None if elapsed > REPORT_MAX + WATCH_ON => break,
                _ => std::thread::sleep(LOOK_EVERY),
            }
        }
        let mut row = self.row(&seen);
        let folder = format!("{}/", mesh.folder.path().display());
        row.message = row.message.replace(&folder, "");
        (self.fix)(mesh).context("fix")?;
        self.clear(mesh, &mut row)?;
        Ok(row)
    }

    /// Reads all nodes once.
    fn look(
        &self,
        mesh: &Mesh,
        lengths: &[usize],
        began: Instant,
        seen: &mut Seen,
    ) -> anyhow::Result<()> {
        for (site, node) in mesh.awake() {
            let is_restarting = began.elapsed() < RESTART_MAX;
            let is_message = |notice: &Notice| {
                let is_expected = self.expects(site, notice);
                let is_of_restart = is_restarting && self.is_of_restart(notice);
                is_expected || !(notice.is_info || is_of_restart)
            };
            let found = watch::notices(node).into_iter().find(is_message);
            if let Some(notice) = found {
                let at = began.elapsed();
                seen.first.entry(site).or_insert((notice, at));
            }
        }
        let others = self.reports.iter().filter(|of| !of.is_in_status());
        for (report, site) in others.flat_map(|of| of.at.iter().map(move |site| (of, *site))) {
            if seen.first.contains_key(&site) {
                continue;
            }
            let text = match report.place {
                Place::Doctor => watch::doctor(mesh, site)?.1,
                Place::Command => mesh.answer.clone(),
                _ => watch::logged(&mesh.log(site), lengths[site]),
            };
            let codes = report.codes.iter().map(|code| format!("[{code}]"));
            let words: Vec<String> = codes.chain([report.text.to_owned()]).collect();
            // A command has answered, whatever it is.
            let is_met = |line: &&str| {
                report.place == Place::Command || words.iter().all(|word| line.contains(word))
            };
            let line = text.lines().find(is_met);
            if let Some(line) = line {
                let notice = Notice {
                    code: report.codes.first().copied().unwrap_or("–").to_owned(),
                    is_info: false,
                    text: line.trim().to_owned(),
                };
                seen.first.insert(site, (notice, began.elapsed()));
            }
        }
        Ok(())
    }

    /// Whether it is about the absence of a node that the fault starts again.
    fn is_of_restart(&self, notice: &Notice) -> bool {
        let is_of = |of: &usize| notice.text.contains(&name(*of));
        notice.code.starts_with("peer-") && self.restarts.iter().any(is_of)
    }

    /// Whether `status` of a node is to list this.
    fn expects(&self, site: usize, notice: &Notice) -> bool {
        let mut here = self.reports_of(site).filter(|of| of.is_in_status());
        here.any(|report| report.is_met_by(notice))
    }

    /// Whether a node was to report this.
    fn is_right(&self, site: usize, notice: &Notice) -> bool {
        self.reports_of(site).any(|of| of.is_met_by(notice))
    }

    fn reports_of(&self, site: usize) -> impl Iterator<Item = &Report> {
        self.reports.iter().filter(move |of| of.at.contains(&site))
    }

    fn knowing(&self) -> Vec<usize> {
        let mut sites: Vec<usize> = self.reports.iter().flat_map(|of| of.at).copied().collect();
        sites.sort_unstable();
        sites.dedup();
        sites
    }

    fn is_reported(&self, seen: &Seen) -> bool {
        let knowing = self.knowing();
        knowing.iter().all(|site| seen.first.contains_key(site))
    }

    fn row(&'static self, seen: &Seen) -> Row {
        let knowing = self.knowing();
        let mut wrong = Vec::new();
        for site in &knowing {
            match seen.first.get(site) {
                None => wrong.push(format!("{} reports nothing", name(*site))),
                Some((notice, _)) if !self.is_right(*site, notice) => wrong.push(format!(
                    "{} reports first: {} [{}]",
                    name(*site),
                    notice.text,
                    notice.code
                )),
                Some((_, at)) if *at > REPORT_MAX => {
                    wrong.push(format!("{} reports after {} s", name(*site), at.as_secs()));
                }
                Some(_) => {}
            }
        }
        for (site, (notice, at)) in &seen.first {
            let is_same = || self.reports.iter().any(|of| of.is_met_by(notice));
            let is_allowed = self.may.contains(site) && is_same();
            if !knowing.contains(site) && !is_allowed {
                wrong.push(format!(
                    "{} cannot know and reports after {} s: {} [{}]",
                    name(*site),
                    at.as_secs(),
                    notice.text,
                    notice.code
                ));
            }
        }
        let of_knowing = || {
            let seen = seen.first.iter();
            seen.filter(|(site, _)| knowing.contains(site))
        };
        let first = of_knowing().min_by_key(|(_, (_, at))| *at);
        let last = of_knowing().map(|(_, (_, at))| *at).max();
        Row {
            fault: self,
            who: match self.reports.iter().all(|of| of.place == Place::Command) {
                true => "the command".to_owned(),
                false => words(&knowing),
            },
            message: first.map_or_else(String::new, |(_, (notice, _))| {
                format!("{} [{}]", notice.text, notice.code)
            }),
            reported: last.filter(|_| self.is_reported(seen)),
            cleared: None,
            wrong,
        }
    }

    /// Waits until all is clear after the fix. What stays too long goes with a start of its node, for the next fault.
    fn clear(&self, mesh: &mut Mesh, row: &mut Row) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut clear = watch::await_clear(mesh, CLEAR_MAX)?;
        while clear.is_ok() && self.is_listed(mesh)? && began.elapsed() < CLEAR_MAX {
            std::thread::sleep(LOOK_EVERY);
            clear = watch::await_clear(mesh, CLEAR_MAX)?;
        }
        match clear {
            Ok(_) if !self.is_listed(mesh)? => {
                let took = began.elapsed();
                if took > CLEAR_MAX {
                    row.wrong.push(format!("clear after {} s", took.as_secs()));
                }
                row.cleared = Some(took);
                return Ok(());
            }
            Ok(_) => row.wrong.push("its message stays".to_owned()),
            Err(why) => row.wrong.push(format!("not clear after a minute: {why}")),
        }
        if watch::await_clear(mesh, Duration::from_secs(120))?.is_ok() {
            row.cleared = Some(began.elapsed());
            return Ok(());
        }
        let red: Vec<usize> = watch::warnings(mesh)
            .iter()
            .map(|(site, _)| *site)
            .collect();
        for site in red {
            eprintln!("{}: started again, because its message stays", name(site));
            if let Err(error) = mesh.stop(site) {
                row.wrong.push(format!("its end is no success: {error}"));
            }
            mesh.run(site)?;
        }
        Ok(())
    }

    /// Whether a message of the fault is still listed, information included.
    fn is_listed(&self, mesh: &Mesh) -> anyhow::Result<bool> {
        for (site, node) in mesh.awake() {
            let mut conditions = self.reports_of(site).filter(|of| of.place == Place::Status);
            let notices = watch::notices(node);
            if conditions.any(|report| notices.iter().any(|of| report.is_met_by(of))) {
                return Ok(true);
            }
        }
        let doctors = self.reports.iter().filter(|of| of.place == Place::Doctor);
        for site in doctors.flat_map(|of| of.at) {
            if watch::doctor(mesh, *site)?.0 != Some(0) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Sites in words: `s00, s02–s09`.
fn words(sites: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for site in sites {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *site => *last = *site,
            _ => runs.push((*site, *site)),
        }
    }
    let run = |(first, last): &(usize, usize)| match last - first {
        0 => name(*first),
        1 => format!("{}, {}", name(*first), name(*last)),
        _ => format!("{}–{}", name(*first), name(*last)),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(", ")
}
