//! `fairmesh policy plan`: who gains and who loses, before anything is published; of two charters, which sites leave,
//! join and change keys.
//!
//! Invariant: shares of the whole are those of `fairmesh_policy::plan`, ranks those of
//! `fairmesh emulate`; entries are listed that either changes for, and those that say another thing of how the
//! level below them is compared or divided. Where charters are given, a signed policy that they do not let speak is
//! left out, and named. Deliberately not here: whether documents are properly signed where none is (`verify`); a draft
//! can be planned with.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use fairmesh_fairshare::EntryKind;
use fairmesh_model::{AccountPath, Distance, Share};
use fairmesh_policy::{CompiledTree, PlanShare};
use serde::Serialize;

use crate::ask::NodeArgs;
use crate::doctor::namesakes;

use fairmesh_api::client::Control;
use fairmesh_node::projection::ProjectionName;
use fairmesh_node::words::number::core_hours;

use super::document::{PolicyDocument, as_text, read_bytes};
use super::draft::Draft;
use super::lost::{Lost, lost};
use super::members::{self, MemberChange};
use super::publish::usage_at;
use super::verify::chain_of;
use crate::emulate::{Charges, Jobs, ShareTree, Unknown, emulate, read_as};
use crate::output::{Exit, OutputArgs, Progress, Table, or_dash, write_json};

/// Options of `plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct PlanArgs {
    /// What is in force: share policies, drafts or share trees that make one tree; with the VO's charters, from the
    /// first, only what these let speak
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub old: Vec<PathBuf>,
    /// What would be
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub new: Vec<PathBuf>,
    /// Charges (path,charge), to compare ranks as well
    #[arg(long, value_name = "USAGE.csv")]
    pub usage: Option<PathBuf>,
    /// How a deviation is measured: absolute, relative, or mix:K
    #[arg(long, default_value = "absolute")]
    pub distance: Distance,
    /// The node that is asked whether accounts mix people of one name, if one is here.
    #[command(flatten)]
    pub node: NodeArgs,
    /// The form of the answer.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// One entry; shares in percent of the whole, with everybody busy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    pub(super) path: AccountPath,
    /// `None` where the entry is new.
    pub(super) old_share: Option<String>,
    /// `None` where the entry goes away.
    pub(super) new_share: Option<String>,
    pub(super) change: String,
    /// The most that the entry may have of its parent, percent, where that changes: 100 is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) old_at_most: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) new_at_most: Option<String>,
    /// What the entry says of the level below it, where that changes: empty where it says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) old_terms: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) new_terms: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) old_rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) new_rank: Option<u32>,
    #[serde(skip)]
    change_units: i64,
}

impl Line {
    fn unchanged(path: AccountPath) -> Self {
        Self {
            path,
            old_share: None,
            new_share: None,
            change: "0".to_owned(),
            old_at_most: None,
            new_at_most: None,
            old_terms: None,
            new_terms: None,
            old_rank: None,
            new_rank: None,
            change_units: 0,
        }
    }
}

pub(super) async fn run(args: &PlanArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if let Some(changes) = members::planned(&args.old, &args.new)? {
        write_members(&changes, args, out)?;
        return Ok(Exit::Success);
    }
    let files = args.old.len() + args.new.len() + usize::from(args.usage.is_some());
    let work = if args.usage.is_some() { 4 } else { 2 };
    let steps = Progress::of_count(u64::try_from(files + work)?, "steps");
    let read_tree = |files: &[PathBuf]| judged_tree(files, || steps.step());
    let ((old, of_old), (new, of_new)) = (read_tree(&args.old)?, read_tree(&args.new)?);
    for (tree, left_out) in [("old", of_old), ("new", of_new)] {
        for said in left_out {
            // Not among what a program reads.
            note!("left out of the {tree}: {said}");
        }
    }
    let usage = args.usage.as_ref().map(|file| {
        let charges = read_as(file, Charges::parse)?;
        steps.step();
        anyhow::Ok(charges)
    });
    let usage = usage.transpose()?;
    let lines = compare(&old, &new, usage.as_ref(), args.distance, || steps.step())?;
    drop(steps);
    // Shares are planned on any machine: most have no node.
    let control = Some(args.node.control()).filter(|control| control.path().exists());
    let charges = match (&usage, &control) {
        (Some(usage), _) => {
            let charges = usage.charges.iter();
            let charges = charges.map(|(path, charge)| (path.clone(), charge.amount));
            charges.collect()
        }
        (None, Some(control)) => charges_at(control, &args.old, &old).await,
        (None, None) => Vec::new(),
    };
    let lost = lost(&old, &new, charges);
    let notes = notes(&new, usage.as_ref());
    write(&lines, &lost, &notes, args, out)?;
    let found = match &control {
        Some(control) => namesakes(control).await,
        None => None,
    };
    if let Some(found) = found {
        // Not among what a program reads.
        note!("{}: {} [{}]", found.severity, found.text, found.code);
    }
    Ok(Exit::Success)
}

/// What the VO's accounts were charged, as the node has it; nothing where it does not answer or has no such VO, or
/// where no file says of which VO the tree is.
async fn charges_at(
    control: &Control,
    files: &[PathBuf],
    tree: &ShareTree,
) -> Vec<(AccountPath, u128)> {
    let vo = |file: &PathBuf| {
        let document = PolicyDocument::parse(&read_bytes(file).ok()?).ok()?;
        Some(document.vo())
    };
    let Some(vo) = files.iter().find_map(vo) else {
        return Vec::new();
    };
    let charges = usage_at(control, vo, tree).await;
    charges.ok().flatten().unwrap_or_default()
}

/// The tree that files make together: share trees, and share policies drafted or signed.
///
/// # Errors
/// A file that cannot be read or holds no shares, and an entry whose parent is in none of them.
pub fn read_tree(files: &[PathBuf]) -> anyhow::Result<ShareTree> {
    Ok(judged_tree(files, || {})?.0)
}

/// That tree, and which signed policies are left out of it, and why, where there are charters among the files.
/// `has_read` hears of each file.
fn judged_tree(files: &[PathBuf], has_read: impl Fn()) -> anyhow::Result<(ShareTree, Vec<String>)> {
    let (mut signed, mut others, mut has_charter) = (Vec::new(), Vec::new(), false);
    for file in files {
        if as_text(&read_bytes(file)?).is_some() {
            others.push(file.clone());
        } else {
            has_charter |= PolicyDocument::read(file)?.own_role().is_some();
            signed.push(file.clone());
        }
        has_read();
    }
    let (mut trees, mut left_out) = (Vec::new(), Vec::new());
    if has_charter {
        let (policies, verdicts) = chain_of(&signed)?;
        for policy in policies.policies() {
            let tree = ShareTree::of_policy(policy.body());
            trees.push(tree.context("a path is too long or too deep")?);
        }
        let refused = verdicts.into_iter();
        left_out.extend(
            refused.filter_map(|(name, verdict)| Some(format!("{name}: {}", verdict.err()?))),
        );
    } else {
        others = files.to_vec();
    }
    for file in &others {
        trees.push(load_one(file)?);
    }
    let tree = ShareTree::union(trees).map_err(|path| {
        anyhow::anyhow!("`{path}` is in a tree and the entry above it is in none: give the policy that divides that")
    })?;
    Ok((tree, left_out))
}

fn load_one(file: &Path) -> anyhow::Result<ShareTree> {
    let (bytes, name) = (read_bytes(file)?, file.display().to_string());
    let policy = match as_text(&bytes) {
        Some(text) if !has_header(text) => return Ok(ShareTree::parse(text, &name)?),
        Some(text) => match Draft::parse(text, &name)? {
            Draft::Shares(policy) => *policy,
            Draft::Charter(_) => bail!("{name} is a charter, which has no shares"),
            Draft::Allocation(_) => bail!("{name} is an allocation, which has no shares"),
            Draft::Snapshot(_) => bail!("{name} is a snapshot, which has no shares"),
        },
        None => match PolicyDocument::read(file)? {
            PolicyDocument::Shares(signed) => signed.claimed().clone(),
            PolicyDocument::Charter(_) => bail!("{name} is a charter, which has no shares"),
            PolicyDocument::Allocation(_) => bail!("{name} is an allocation, which has no shares"),
            PolicyDocument::Snapshot(_) => bail!("{name} is a snapshot, which has no shares"),
        },
    };
    ShareTree::of_policy(&policy).with_context(|| format!("{name}: a path is too long or too deep"))
}

/// Whether a text is a draft and not a bare share tree.
fn has_header(text: &str) -> bool {
    let table: Option<toml::Table> = text.parse().ok();
    let kinds = ["policy", "charter", "allocation", "snapshot"];
    table.is_some_and(|table| kinds.iter().any(|kind| table.contains_key(*kind)))
}

/// The entries that a change touches: the winners first, by how much.
pub(super) fn compare(
    old: &ShareTree,
    new: &ShareTree,
    usage: Option<&Charges>,
    distance: Distance,
    step: impl Fn(),
) -> anyhow::Result<Vec<Line>> {
    let (compiled_old, compiled_new) = (
        CompiledTree::of_entries(old.entries()),
        CompiledTree::of_entries(new.entries()),
    );
    step();
    let mut lines: Vec<Line> = fairmesh_policy::plan(&compiled_old, &compiled_new)
        .into_iter()
        .map(|line| {
            let units = |share: Option<PlanShare>| share.map_or(0, |share| share.absolute);
            let change_units = units(line.after).cast_signed() - units(line.before).cast_signed();
            let limits = [line.before, line.after].map(at_most);
            let [old_at_most, new_at_most] = match limits[0] == limits[1] {
                true => [None, None],
                false => limits.map(|limit| Some(limit.to_string())),
            };
            Line {
                old_at_most,
                new_at_most,
                old_share: line.before.map(|share| percent(share.absolute)),
                new_share: line.after.map(|share| percent(share.absolute)),
                change: signed_percent(change_units),
                change_units,
                ..Line::unchanged(line.path)
            }
        })
        .collect();
    add_terms(&mut lines, old, new);
    step();
    if let Some(usage) = usage {
        let ranks = |tree| {
            let ranks = ranks(tree, usage, distance)?;
            step();
            anyhow::Ok(ranks)
        };
        add_ranks(&mut lines, &ranks(old)?, &ranks(new)?);
    }
    lines.sort_by(|a, b| {
        b.change_units
            .cmp(&a.change_units)
            .then_with(|| a.path.cmp(&b.path))
    });
    Ok(lines)
}

fn ranks(
    tree: &ShareTree,
    usage: &Charges,
    distance: Distance,
) -> anyhow::Result<BTreeMap<AccountPath, u32>> {
    let emulated = emulate(
        tree,
        usage,
        &Jobs::default(),
        distance,
        ProjectionName::Rank,
        Unknown::CountAbove,
    )?;
    Ok(emulated
        .entries
        .into_iter()
        .map(|entry| (entry.path, entry.rank))
        .collect())
}

/// Adds what entries say of the level below them where that changes, and lines for entries of which only that does.
fn add_terms(lines: &mut Vec<Line>, old: &ShareTree, new: &ShareTree) {
    let of = |tree: &ShareTree| -> BTreeMap<AccountPath, String> {
        let terms = tree.terms();
        terms
            .map(|(path, terms)| (path.clone(), terms.to_string()))
            .collect()
    };
    let (old, new) = (of(old), of(new));
    let differs = |path: &&AccountPath| old.get(*path) != new.get(*path);
    add_lines(lines, old.keys().chain(new.keys()).filter(differs));
    for line in lines.iter_mut().filter(|line| differs(&&line.path)) {
        let said = |terms: &BTreeMap<_, String>| terms.get(&line.path).cloned().unwrap_or_default();
        (line.old_terms, line.new_terms) = (Some(said(&old)), Some(said(&new)));
    }
}

/// Adds lines for those entries that have none yet.
fn add_lines<'a>(lines: &mut Vec<Line>, paths: impl Iterator<Item = &'a AccountPath>) {
    let listed: BTreeSet<AccountPath> = lines.iter().map(|line| line.path.clone()).collect();
    let more: BTreeSet<&AccountPath> = paths.filter(|path| !listed.contains(*path)).collect();
    lines.extend(more.into_iter().cloned().map(Line::unchanged));
}

/// Adds the ranks, and lines for entries of which only the rank changes.
fn add_ranks(
    lines: &mut Vec<Line>,
    old: &BTreeMap<AccountPath, u32>,
    new: &BTreeMap<AccountPath, u32>,
) {
    let moved = new
        .iter()
        .filter(|(path, rank)| !path.is_root() && old.get(*path) != Some(*rank));
    add_lines(lines, moved.map(|(path, _)| path));
    for line in lines {
        (line.old_rank, line.new_rank) =
            (old.get(&line.path).copied(), new.get(&line.path).copied());
    }
}

/// What the author of the new tree should know: levels that do not add up to 100, and usage of accounts without a
/// line where no line `*` is written.
fn notes(tree: &ShareTree, usage: Option<&Charges>) -> Vec<String> {
    let reader = tree.reader();
    let mut without: BTreeMap<String, u128> = BTreeMap::new();
    for (path, charge) in usage.into_iter().flat_map(|usage| &usage.charges) {
        let entry = reader.resolve(path).entry;
        if reader.kind(entry) == EntryKind::ImpliedOthers && !path.is_root() {
            *without.entry(reader.path(entry).to_string()).or_default() += charge.amount;
        }
    }
    let without = without.into_iter().map(|(others, amount)| {
        let hours = core_hours(&amount.to_string());
        format!(
            "{hours} core-hours are of accounts without a line below {}: they get a share of 0. Add a line such as \"{others}\" = 10",
            others.trim_end_matches('*')
        )
    });
    let sums = tree.other_sums().map(|sums| sums.to_string());
    sums.into_iter().chain(without).collect()
}

/// The most that an entry may have: an entry that is not there has no limit.
fn at_most(share: Option<PlanShare>) -> Share {
    share.map_or(Share::WHOLE, |share| share.at_most)
}

/// Units of 10^-9 of the whole, in percent.
fn percent(units: u64) -> String {
    let share = u32::try_from(units).ok().and_then(Share::from_units);
    share.unwrap_or(Share::WHOLE).to_string()
}

fn signed_percent(units: i64) -> String {
    let sign = match units {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", percent(units.unsigned_abs()))
}

fn write_notes(lost: &[Lost], notes: &[String], out: &mut dyn Write) -> anyhow::Result<()> {
    let lost = lost.iter().map(ToString::to_string);
    for said in lost.chain(notes.iter().cloned()) {
        writeln!(out, "{said}")?;
    }
    Ok(())
}

fn write_members(
    changes: &[MemberChange],
    args: &PlanArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Plan<'a> {
        members: &'a [MemberChange],
    }
    if args.output.json {
        let plan = Plan { members: changes };
        return write_json(out, "fairmesh.plan-charter/1", &plan);
    }
    for change in changes {
        writeln!(out, "{change}")?;
    }
    if changes.is_empty() {
        writeln!(out, "no site leaves, joins or changes")?;
    }
    Ok(())
}

fn write(
    lines: &[Line],
    lost: &[Lost],
    notes: &[String],
    args: &PlanArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Plan<'a> {
        entries: &'a [Line],
        lost: &'a [Lost],
        notes: &'a [String],
    }
    if args.output.json {
        return write_json(
            out,
            "fairmesh.plan/1",
            &Plan {
                entries: lines,
                lost,
                notes,
            },
        );
    }
    if !args.output.parsable {
        write_notes(lost, notes, out)?;
    }
    if lines.is_empty() && !args.output.parsable {
        writeln!(out, "nobody gains or loses")?;
        return Ok(());
    }
    let rank = |rank: Option<u32>| or_dash(rank.map(|rank| rank.to_string()));
    let has_limits = lines.iter().any(|line| line.new_at_most.is_some());
    let has_terms = lines.iter().any(|line| line.new_terms.is_some());
    let chosen = [
        (true, "Entry|>Old%|>New%|>Change%"),
        (args.usage.is_some(), "|>OldRank|>NewRank"),
        (has_limits, "|>OldAtMost%|>NewAtMost%"),
        (has_terms, "|OldTerms|NewTerms"),
    ];
    let columns = chosen.iter().filter(|(is_chosen, _)| *is_chosen);
    let columns: String = columns.map(|(_, names)| *names).collect();
    let mut table = Table::new(&columns).with_heading("Shares of the whole with everybody busy");
    for line in lines {
        let mut row = vec![line.path.to_string()];
        row.extend([&line.old_share, &line.new_share].map(|share| or_dash(share.clone())));
        row.push(line.change.clone());
        if args.usage.is_some() {
            row.extend([rank(line.old_rank), rank(line.new_rank)]);
        }
        if has_limits {
            row.extend([&line.old_at_most, &line.new_at_most].map(|limit| or_dash(limit.clone())));
        }
        if has_terms {
            let said =
                |terms: &Option<String>| or_dash(terms.clone().filter(|said| !said.is_empty()));
            row.extend([&line.old_terms, &line.new_terms].map(said));
        }
        table.row(row);
    }
    Ok(table.write(out, &args.output)?)
}
