//! Whether sites keep what was agreed, or what they say themselves that they grant.
//!
//! Invariant: that all is kept is said only where each VO was looked at, at one site at least.

use std::collections::BTreeSet;
use std::io::Write;

use fairmesh_broker::sla::{Had, SlaEntry};
use fairmesh_broker::{Sign, SiteView, Sla, Standing};
use fairmesh_model::{AccountPath, Millis, clean};
use serde::Serialize;
use strum::IntoStaticStr;

use super::{CheckArgs, percent, sites_of};
use crate::emulate::read_as;
use crate::output::{Exit, Table, write_json};

/// Name and version of the JSON.
const SCHEMA: &str = "fairmesh.sla-check/1";

const SILENT: &str = "nothing has been received from it lately, so nothing is found";

const ABSENT: &str = "the VO has no SLA there, and one was agreed";

const UNCHECKED: &str = "nothing is checked: no site says how the VO stands there (is this its name, and have its sites \
                         [advert]?)";

const NO_ENTRY: &str = "nothing is checked: no entry is of a VO";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
enum Kind {
    /// A limit is passed.
    Passed,
    /// A guarantee is broken.
    Broken,
    /// The site goes by something else than the SLA.
    Differs,
    /// What is known of the site is too old.
    Silent,
    /// The site grants nothing of what was agreed.
    Absent,
    /// No site was looked at, so this finding is of none.
    Unchecked,
}

#[derive(Serialize)]
struct Answer {
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Finding {
    path: String,
    site: String,
    kind: Kind,
    age_s: Option<u64>,
    what: String,
}

pub(super) fn check(args: &CheckArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let sla = args.sla.as_deref().map(|file| read_as(file, Sla::parse));
    let sla = sla.transpose()?;
    let mut vos: BTreeSet<&str> = args.vo.iter().map(String::as_str).collect();
    if let (Some(sla), None) = (&sla, &args.vo) {
        vos.extend(sla.entries.keys().filter_map(vo_of));
    }
    let mut findings = Vec::new();
    if vos.is_empty() {
        findings.push(unchecked("/".to_owned(), NO_ENTRY));
    }
    let mut is_known = args.site.is_none();
    for vo in vos {
        let (grid, silence) = sites_of(args.grid.as_deref(), &args.node, vo)?;
        let mut entries = sla.iter().flat_map(|sla| &sla.entries);
        let entry = entries.find_map(|(path, entry)| (vo_of(path) == Some(vo)).then_some(entry));
        let is_asked = |site: &&SiteView| args.site.as_ref().is_none_or(|name| site.name == *name);
        let mut is_checked = false;
        for site in grid.sites.iter().filter(is_asked) {
            is_known = true;
            let found = match site.vos.get(vo) {
                _ if is_silent(site, silence) => vec![(Kind::Silent, SILENT.to_owned())],
                None if entry.is_none_or(|entry| *entry == SlaEntry::default()) => continue,
                said => {
                    is_checked = true;
                    let absent = || vec![(Kind::Absent, ABSENT.to_owned())];
                    said.map_or_else(absent, |said| of_entry(site, entry, said))
                }
            };
            findings.extend(found.into_iter().map(|(kind, what)| Finding {
                path: format!("/{vo}"),
                site: site.name.clone(),
                kind,
                age_s: site.age.map(|age| age.0 / 1_000),
                what,
            }));
        }
        if !is_checked {
            findings.push(unchecked(format!("/{vo}"), UNCHECKED));
        }
    }
    if let Some(name) = args.site.as_ref().filter(|_| !is_known) {
        let of = args.grid.as_ref().map(|file| file.display().to_string());
        let of = of.unwrap_or_else(|| "the node".to_owned());
        anyhow::bail!("{of}: there is no site `{name}`");
    }
    let is_bad = |finding: &Finding| !matches!(finding.kind, Kind::Differs | Kind::Silent);
    let is_good = !findings.iter().any(is_bad);
    write(&Answer { findings }, args, out)?;
    Ok(Exit::of(is_good))
}

fn unchecked(path: String, what: &str) -> Finding {
    Finding {
        path,
        site: String::new(),
        kind: Kind::Unchecked,
        age_s: None,
        what: what.to_owned(),
    }
}

/// The VO that an entry of an owner's document is of; entries below it are of its groups.
fn vo_of(path: &AccountPath) -> Option<&str> {
    path.name().filter(|_| path.depth() == 1)
}

fn is_silent(site: &SiteView, silence: Option<Millis>) -> bool {
    site.age
        .zip(silence)
        .is_some_and(|(age, silence)| age > silence)
}

/// What is wrong with one VO at one site.
fn of_entry(site: &SiteView, entry: Option<&SlaEntry>, said: &Standing) -> Vec<(Kind, String)> {
    let had = Had {
        epoch: said.epoch_used,
        burst: said.burst_used,
        waiting: said.waiting,
    };
    let agreed = entry.map_or(*said, |entry| entry.standing(site.total, had));
    let mut found = Vec::new();
    if agreed.sign == Sign::AtMost && agreed.is_over() {
        let (used, share) = (percent(agreed.epoch_used), agreed.epoch_share);
        found.push((
            Kind::Passed,
            format!("{used} % of the epoch are used, of {share} %"),
        ));
    }
    let lifted = agreed.extensible && site.waiting == 0;
    if agreed.burst_used > agreed.burst_limit && !lifted {
        let (held, limit) = (agreed.burst_used, agreed.burst_limit);
        found.push((Kind::Passed, format!("{held} CPUs are held, of {limit}")));
    }
    let owed = agreed.owed(site.total);
    if owed > site.idle() {
        let idle = site.idle();
        found.push((
            Kind::Broken,
            format!("its jobs wait for {owed} CPUs of its guarantee, and {idle} are idle"),
        ));
    }
    let Some(entry) = entry else {
        return found;
    };
    let by_cpu = entry.cpu.is_some_and(|cpu| cpu.share.is_some());
    if by_cpu && agreed.epoch_share != said.epoch_share {
        let (site, sla) = (said.epoch_share, agreed.epoch_share);
        found.push((
            Kind::Differs,
            format!("the site goes by {site} % of the epoch, the SLA says {sla} %"),
        ));
    }
    let by_burst = entry.cpu.is_some_and(|cpu| cpu.burst.is_some()) || entry.at_most.is_some();
    if by_burst && agreed.burst_limit != said.burst_limit {
        let (site, sla) = (said.burst_limit, agreed.burst_limit);
        found.push((
            Kind::Differs,
            format!("the site goes by {site} CPUs at once, the SLA says {sla}"),
        ));
    }
    found
}

fn write(answer: &Answer, args: &CheckArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.output.json {
        return write_json(out, SCHEMA, answer);
    }
    if answer.findings.is_empty() && !args.output.parsable {
        writeln!(out, "Every limit and every guarantee is kept.")?;
        return Ok(());
    }
    let mut table = Table::new("Entry|Site|Finding|>Age s|What");
    for finding in &answer.findings {
        table.row([
            finding.path.clone(),
            clean(&finding.site),
            <&str>::from(finding.kind).to_owned(),
            finding
                .age_s
                .map_or_else(|| "?".to_owned(), |age| age.to_string()),
            finding.what.clone(),
        ]);
    }
    Ok(table.write(out, &args.output)?)
}
