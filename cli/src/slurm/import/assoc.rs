//! Associations as `sacctmgr -P show assoc` lists them: text in, checked rows out.
//!
//! Columns are found by the names in the header, in any order; a file that was saved without a header (`-n`) has the
//! columns of [`HEADLESS`], in this order.
//! Invariant: each row has a place in Slurm's tree that no other row has, and names as reports of jobs carry them. An
//! error names the line. Deliberately not here: what the rows mean for shares (`tree`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use fairmesh_model::clean;
use fairmesh_model::record::fit;

/// The account that has no parent.
pub(super) const ROOT: &str = "root";

/// What to ask `sacctmgr` for: what the tree is made of, and what has no counterpart in it.
pub(super) const FORMAT: &str = "format=cluster,account,parentname,user,partition,fairshare,priority,grpjobs,\
    grpsubmit,grpwall,grptres,grptresmins,grptresrunmins,maxjobs,maxsubmit,maxwall,maxtres,maxtrespernode,maxtresmins,\
    qos,defaultqos";

/// The columns of a file without a header; the last one may be missing.
pub(super) const HEADLESS: &str = "account,parentname,user,fairshare,partition";

/// `Fairshare` of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fairshare {
    /// A weight among its siblings.
    Shares(u32),
    /// `parent`: an account gives its level up, a user goes first in the account.
    Parent,
}

/// One row: an account, or a user in an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assoc<'a> {
    /// Its line in the list, from 1.
    pub(super) line: usize,
    pub(super) account: Cow<'a, str>,
    /// The account above an account; empty for the root and for users.
    pub(super) parent: Cow<'a, str>,
    /// The user; `None` for the account itself.
    pub(super) user: Option<Cow<'a, str>>,
    /// The partition whose jobs of this user it is for; `None` for all others.
    pub(super) partition: Option<Cow<'a, str>>,
    pub(super) fairshare: Fairshare,
}

/// A list of one cluster.
#[derive(Debug, Default)]
pub(super) struct Listing<'a> {
    /// The cluster, where the list says it.
    pub(super) cluster: Option<String>,
    /// Ascending by account, user and partition.
    pub(super) associations: Vec<Assoc<'a>>,
    /// How many associations have a value in a column of limits.
    pub(super) limits: BTreeMap<String, usize>,
}

/// Where the columns are.
struct Columns {
    account: usize,
    parent: usize,
    user: usize,
    fairshare: usize,
    partition: Option<usize>,
    cluster: Option<usize>,
    limits: Vec<(usize, String)>,
    count: usize,
}

impl Columns {
    /// Columns by the names of a header; `None` where this line is none.
    fn from_header(cells: &[&str]) -> anyhow::Result<Option<Self>> {
        let names: Vec<String> = cells.iter().map(|cell| normalised(cell)).collect();
        let find = |known: &[&str]| names.iter().position(|name| known.contains(&name.as_str()));
        let (account, user) = (find(&["account", "acct"]), find(&["user"]));
        let fairshare = find(&["share", "fairshare"]);
        let parent = find(&["parentname", "parname", "parent"]);
        let found = [account, user, fairshare, parent];
        if found.iter().flatten().count() < 2 {
            return Ok(None);
        }
        let need = |column: Option<usize>, name| {
            column.with_context(|| {
                format!(
                    "the column {name} is missing: list it with `sacctmgr -P show assoc {FORMAT}`"
                )
            })
        };
        let is_limit = |name: &str| {
            let begins = |prefix: &&str| name.starts_with(*prefix);
            ["grp", "max", "min", "qos", "defqos", "priority"]
                .iter()
                .any(begins)
        };
        let limits = names.iter().zip(cells).enumerate();
        let limits = limits.filter(|(_, (name, _))| is_limit(name));
        Ok(Some(Self {
            account: need(account, "Account")?,
            parent: need(parent, "ParentName")?,
            user: need(user, "User")?,
            fairshare: need(fairshare, "Fairshare")?,
            partition: find(&["partition"]),
            cluster: find(&["cluster"]),
            limits: limits
                .map(|(at, (_, cell))| (at, cell.trim().to_owned()))
                .collect(),
            count: cells.len(),
        }))
    }

    /// Columns of a file without a header, by how many it has.
    fn headless(count: usize) -> anyhow::Result<Self> {
        ensure!(
            (4..=5).contains(&count),
            "{count} columns and no header, where {HEADLESS} are expected: list them with \
             `sacctmgr -P show assoc {FORMAT}`"
        );
        Ok(Self {
            account: 0,
            parent: 1,
            user: 2,
            fairshare: 3,
            partition: (count == 5).then_some(4),
            cluster: None,
            limits: Vec::new(),
            count,
        })
    }
}

/// Reads a list.
///
/// # Errors
/// The first line that is no association, or one that is there twice.
pub(super) fn parse<'a>(text: &'a str, file: &str) -> anyhow::Result<Listing<'a>> {
    let mut listing = Listing::default();
    let mut clusters = BTreeSet::new();
    let mut columns: Option<Columns> = None;
    let lines = text.lines().map(str::trim_end).enumerate();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let number = index + 1;
        let at = || format!("{file}:{number}");
        let cells: Vec<&str> = line.split('|').collect();
        let Some(columns) = &columns else {
            let header = Columns::from_header(&cells).with_context(at)?;
            let is_header = header.is_some();
            let first = header.map_or_else(|| Columns::headless(cells.len()), Ok);
            let first = columns.insert(first.with_context(at)?);
            if !is_header {
                let row = row(&cells, first, number).with_context(at)?;
                listing.associations.push(row);
            }
            continue;
        };
        listing
            .associations
            .push(row(&cells, columns, number).with_context(at)?);
        if let Some(cluster) = columns.cluster {
            clusters.insert(cells[cluster]);
        }
        for (column, name) in &columns.limits {
            if !cells[*column].is_empty() {
                *listing.limits.entry(name.clone()).or_default() += 1;
            }
        }
    }
    ensure!(
        !listing.associations.is_empty(),
        "{file}: no association is listed"
    );
    if clusters.len() > 1 {
        let all: Vec<String> = clusters.iter().map(|cluster| clean(cluster)).collect();
        bail!(
            "{file}: associations of {} clusters ({}): list one of them, with `where cluster={}`",
            all.len(),
            all.join(", "),
            all[0]
        );
    }
    listing.cluster = clusters.first().map(|cluster| clean(cluster));
    sort(&mut listing.associations, file)?;
    Ok(listing)
}

/// Puts rows into order, and refuses two for one place.
fn sort(associations: &mut [Assoc<'_>], file: &str) -> anyhow::Result<()> {
    associations.sort_by(|a, b| key(a).cmp(&key(b)).then(a.line.cmp(&b.line)));
    let twice = associations
        .windows(2)
        .find(|two| key(&two[0]) == key(&two[1]));
    if let Some([first, second]) = twice {
        let whose = first
            .user
            .as_deref()
            .map_or_else(String::new, |user| format!("user {} in ", clean(user)));
        bail!(
            "{file}:{}: {whose}account {} is in line {} already: list one cluster, with the column Partition",
            second.line,
            clean(&first.account),
            first.line
        );
    }
    Ok(())
}

fn key<'a>(assoc: &'a Assoc<'_>) -> (&'a str, Option<&'a str>, Option<&'a str>) {
    let (user, partition) = (assoc.user.as_deref(), assoc.partition.as_deref());
    (&assoc.account, user, partition)
}

fn row<'a>(cells: &[&'a str], columns: &Columns, line: usize) -> anyhow::Result<Assoc<'a>> {
    ensure!(
        cells.len() == columns.count,
        "{} columns instead of {}: is this what `sacctmgr -P` printed, and has a name a `|`?",
        cells.len(),
        columns.count
    );
    let name = |column: usize| Some(cells[column]).filter(|name| !name.is_empty()).map(fit);
    let share = cells[columns.fairshare];
    let fairshare = match share.parse() {
        Ok(shares) => Fairshare::Shares(shares),
        Err(_) if share.eq_ignore_ascii_case("parent") => Fairshare::Parent,
        Err(_) => bail!(
            "Fairshare is `{}`, and neither a whole number nor parent",
            clean(share)
        ),
    };
    let account = name(columns.account).context("no account")?;
    let (user, parent) = (name(columns.user), name(columns.parent));
    let is_account_below = user.is_none() && account != ROOT;
    ensure!(
        parent.is_some() || !is_account_below,
        "account {} has no parent account: list the column ParentName",
        clean(&account)
    );
    Ok(Assoc {
        line,
        parent: parent.unwrap_or_default(),
        partition: columns.partition.and_then(name).filter(|_| user.is_some()),
        user,
        account,
        fairshare,
    })
}

/// A column's name without what versions of Slurm write differently.
fn normalised(name: &str) -> String {
    let letters = name.chars().filter(|c| c.is_ascii_alphanumeric());
    letters.map(|c| c.to_ascii_lowercase()).collect()
}
