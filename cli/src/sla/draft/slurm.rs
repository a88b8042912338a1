//! Drafts from what a Slurm is configured to do.
//!
//! An account's fairshare is a target among its siblings, and its GrpTRES a limit in CPUs. Where an account may not
//! use every partition, the CPUs of those that it may use are a limit, too; machines that are in two of them count
//! twice, so that it is never too low.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use fairmesh_broker::Sla;
use fairmesh_broker::sla::SlaEntry;
use fairmesh_model::{AccountPath, clean};

use super::{Draft, target};

/// How deep accounts are nested at most: deeper ones are a circle.
const DEPTH_MAX: usize = 64;

/// An account as Slurm knows it.
#[derive(Debug, Default)]
pub(super) struct Account {
    parent: String,
    /// Fairshare; none where it is its parent's.
    shares: Option<u64>,
    cpus: Option<u64>,
    cpu_minutes: Option<u64>,
}

/// A partition, and who may use it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Partition {
    name: String,
    cpus: u64,
    /// Accounts that may use the partition; `None` for all.
    allowed: Option<BTreeSet<String>>,
    denied: BTreeSet<String>,
}

impl Partition {
    /// Whether an account may use it; what is said of a parent holds for those below it, as in Slurm.
    fn is_open_to(&self, accounts: &BTreeMap<String, Account>, name: &str) -> bool {
        let parent = |at: &&str| Some(accounts.get(*at)?.parent.as_str());
        let mut line = std::iter::successors(Some(name), parent).take(DEPTH_MAX + 1);
        match &self.allowed {
            Some(allowed) => line.any(|at| allowed.contains(at)),
            None => !line.any(|at| self.denied.contains(at)),
        }
    }
}

/// Reads what `scontrol --oneliner show partition` prints: a partition a line, of words `Key=value`.
pub(super) fn read_partitions(text: &str, file: &str) -> anyhow::Result<Vec<Partition>> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let read = |(index, line): (usize, &str)| {
        let words: BTreeMap<&str, &str> = line
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .collect();
        let name = words.get("PartitionName").with_context(|| {
            format!(
                "{file}:{}: no word `PartitionName=`: give the output of `scontrol --oneliner show partition`",
                index + 1
            )
        })?;
        let cpus = words.get("TotalCPUs").copied().unwrap_or("0");
        let cpus = cpus.parse().map_err(|_| {
            let (line, name, cpus) = (index + 1, clean(name), clean(cpus));
            anyhow::anyhow!("{file}:{line}: partition `{name}`: `{cpus}` is no number of CPUs")
        })?;
        let names = |key: &str| {
            let list = words.get(key).copied().unwrap_or("ALL");
            let names = list.split(',').map(str::to_owned).collect();
            (!list.eq_ignore_ascii_case("ALL")).then_some(names)
        };
        Ok(Partition {
            name: (*name).to_owned(),
            cpus,
            allowed: names("AllowAccounts"),
            denied: names("DenyAccounts").unwrap_or_default(),
        })
    };
    lines.map(read).collect()
}

/// Reads what `sacctmgr --parsable2 show assoc` prints. Columns go by their names; users' rows are left out.
pub(super) fn read(text: &str, file: &str) -> anyhow::Result<BTreeMap<String, Account>> {
    let mut lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines
        .next()
        .with_context(|| format!("{file}: there is nothing in it"))?;
    let names: Vec<&str> = header.split('|').map(str::trim).collect();
    let column = |wanted: &[&str]| names.iter().position(|name| wanted.contains(name));
    let account = column(&["Account"]).with_context(|| {
        format!(
            "{file}:1: no column `Account`: give the output of `sacctmgr --parsable2 show assoc`"
        )
    })?;
    let [parent, user, share, tres, minutes] = [
        column(&["Par Name", "ParentName"]),
        column(&["User"]),
        column(&["Share", "Fairshare"]),
        column(&["GrpTRES"]),
        column(&["GrpTRESMins"]),
    ];
    let mut accounts = BTreeMap::new();
    for (index, line) in lines {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let cell = |at: Option<usize>| at.and_then(|at| cells.get(at)).copied().unwrap_or("");
        let name = cell(Some(account));
        if !cell(user).is_empty() || matches!(name, "" | "root") {
            continue;
        }
        let wrong = |what: &str, text: &str| {
            let (line, name) = (index + 1, clean(name));
            anyhow::anyhow!(
                "{file}:{line}: account `{name}`: `{}` is no {what}",
                clean(text)
            )
        };
        let shares = match cell(share) {
            "" | "parent" => None,
            text => Some(text.parse().map_err(|_| wrong("number of shares", text))?),
        };
        let cpus = |text: &str| -> anyhow::Result<Option<u64>> {
            let cpu = text.split(',').find_map(|part| part.strip_prefix("cpu="));
            let cpu = cpu.map(|cpu| cpu.parse().map_err(|_| wrong("number of CPUs", text)));
            cpu.transpose()
        };
        let read = Account {
            parent: cell(parent).to_owned(),
            shares,
            cpus: cpus(cell(tres))?,
            cpu_minutes: cpus(cell(minutes))?,
        };
        accounts.insert(name.to_owned(), read);
    }
    Ok(accounts)
}

/// The draft, and what could not be said in it.
pub(super) fn of_accounts(
    accounts: &BTreeMap<String, Account>,
    partitions: &[Partition],
) -> anyhow::Result<Draft> {
    let mut siblings: BTreeMap<&str, u64> = BTreeMap::new();
    for account in accounts.values() {
        let sum = siblings.entry(&account.parent).or_default();
        *sum = sum.saturating_add(account.shares.unwrap_or(0));
    }
    let (mut sla, mut comments) = (Sla::default(), Vec::new());
    for (name, account) in accounts {
        let path = path_of(name, accounts)?;
        if let Some(minutes) = account.cpu_minutes {
            comments.push(format!(
                "{path}: GrpTRESMins cpu={minutes} is a limit without an interval: say in which, as in `cpu = \"10%+ / 30d\"`"
            ));
        }
        let of_all = siblings[account.parent.as_str()];
        let open = partitions.iter().filter(|of| of.is_open_to(accounts, name));
        let open: Vec<&Partition> = open.collect();
        let within = (open.len() < partitions.len()).then(|| {
            open.iter()
                .fold(0_u64, |sum, of| sum.saturating_add(of.cpus))
        });
        if let Some(cpus) = within {
            let names: Vec<String> = open.iter().map(|of| clean(&of.name)).collect();
            comments.push(match names.is_empty() {
                true => format!("{path}: no partition is open to it"),
                false => format!("{path}: partitions {} have {cpus} CPUs", names.join(", ")),
            });
        }
        let entry = SlaEntry {
            cpu: account.shares.map(|shares| target(shares, of_all)),
            at_most: account.cpus.into_iter().chain(within).min(),
            ..SlaEntry::default()
        };
        sla.entries.insert(path, entry);
    }
    Ok(Draft { sla, comments })
}

/// Where an account stands below its parents.
fn path_of(name: &str, accounts: &BTreeMap<String, Account>) -> anyhow::Result<AccountPath> {
    let (mut names, mut at) = (Vec::new(), name);
    while let Some(account) = accounts.get(at) {
        anyhow::ensure!(
            names.len() < DEPTH_MAX,
            "account `{}` is its own parent",
            clean(name)
        );
        names.push(at);
        at = &account.parent;
    }
    let mut names = names.into_iter().rev();
    names.try_fold(AccountPath::root(), |path, name| {
        let path = path.child(name);
        path.with_context(|| format!("account `{}`", clean(name)))
    })
}

#[cfg(test)]
mod tests {
    use super::super::differences;
    use super::*;

    const ASSOC: &str = "Cluster|Account|Par Name|User|Share|GrpTRES|GrpTRESMins\n\
        c|root||||||\nc|root||root|1||\n\
        c|physics|root||30|cpu=600,mem=5T|\nc|physics||ann|1||\nc|cms|physics||1|cpu=150|cpu=9000\n\
        c|atlas|physics||3||\nc|chem|root||10||\nc|idle|root||parent||\n";

    #[test]
    fn shares_and_limits_of_accounts_become_lines_that_are_read_back() {
        let accounts = read(ASSOC, "f").expect("associations");
        let Draft { sla, comments } = of_accounts(&accounts, &[]).expect("a draft");
        let text = sla.to_toml();
        let expected = "[sla]\n\"/chem\" = { cpu = \"25%\" }\n\"/idle\" = {}\n\
            \"/physics\" = { cpu = \"75%\", at_most = \"600cpus\" }\n\
            \"/physics/atlas\" = { cpu = \"75%\" }\n\"/physics/cms\" = { cpu = \"25%\", at_most = \"150cpus\" }\n";
        assert_eq!(text, expected);
        assert_eq!(Sla::parse(&text, "draft").expect("an SLA"), sla);
        assert!(
            comments.len() == 1 && comments[0].starts_with("/physics/cms: GrpTRESMins cpu=9000")
        );
        let signed = expected
            .replace("600cpus", "500cpus")
            .replace("\"/idle\" = {}\n", "");
        let said = differences(
            &Sla::parse(&signed, "signed").expect("an SLA"),
            &sla,
            "Slurm",
        );
        assert_eq!(
            said,
            [
                "/idle: the SLA says nothing, and Slurm is configured to no limit",
                "/physics: the SLA says 75%, at most 500 CPUs, and Slurm is configured to 75%, at most 600 CPUs",
            ]
        );
        assert_eq!(differences(&sla, &sla, "Slurm"), Vec::<String>::new());
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |text: &str| {
            let read = read(text, "f").and_then(|accounts| of_accounts(&accounts, &[]));
            read.map(|_| ()).expect_err(text).to_string()
        };
        assert_eq!(error("\n"), "f: there is nothing in it");
        assert!(error("a|b\n").starts_with("f:1: no column `Account`"));
        assert_eq!(
            error("Account|Share\nx|many\n"),
            "f:2: account `x`: `many` is no number of shares"
        );
        assert_eq!(
            error("Account|GrpTRES\nx|cpu=-1\n"),
            "f:2: account `x`: `cpu=-1` is no number of CPUs"
        );
        assert_eq!(
            error("Account|Par Name\nx|y\ny|x\n"),
            "account `x` is its own parent"
        );
    }

    #[test]
    fn partitions_bound_accounts_that_may_not_use_all_of_them() {
        const PARTITIONS: &str = "PartitionName=debug AllowGroups=ALL AllowAccounts=ALL Default=YES MaxNodes=UNLIMITED State=UP TotalCPUs=16 TotalNodes=1\n\
            PartitionName=long AllowGroups=ALL AllowAccounts=physics State=UP TotalCPUs=512 TotalNodes=8\n\
            PartitionName=gpu AllowGroups=ALL DenyAccounts=chem,atlas State=UP TotalCPUs=64 TotalNodes=2\n";
        let accounts = read(ASSOC, "f").expect("associations");
        let partitions = read_partitions(PARTITIONS, "p").expect("partitions");
        let Draft { sla, comments } = of_accounts(&accounts, &partitions).expect("a draft");
        let most = |path: &str| sla.entries[&AccountPath::parse(path).expect("a path")].at_most;
        let most = [
            "/physics",
            "/physics/cms",
            "/physics/atlas",
            "/chem",
            "/idle",
        ]
        .map(most);
        assert_eq!(most, [Some(600), Some(150), Some(528), Some(16), Some(80)]);
        assert!(
            comments.contains(&"/physics/atlas: partitions debug, long have 528 CPUs".to_owned()),
            "{comments:?}"
        );
        let error = |text: &str| read_partitions(text, "p").expect_err(text).to_string();
        assert!(error("\nNodes=1\n").starts_with("p:2: no word `PartitionName=`"));
        assert_eq!(
            error("PartitionName=a TotalCPUs=x"),
            "p:1: partition `a`: `x` is no number of CPUs"
        );
    }
}
