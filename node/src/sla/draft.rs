//! Drafts of SLAs from what a Slurm is configured to do.
//!
//! An account's fairshare is a target among its siblings, and its GrpTRES a limit in CPUs. What has no counterpart
//! stands as a comment, so that nothing is lost silently. Where an SLA is given beside it, what differs is said with
//! both values.
//!
//! Invariant: a draft is read back by whoever reads SLAs. Deliberately not here: asking Slurm; its words come from a
//! file or from standard input, so that a draft can be made anywhere.

use std::collections::BTreeMap;
use std::io::{Read as _, Write};

use anyhow::Context as _;
use fairmesh_broker::Sla;
use fairmesh_broker::sla::{Amount, Bound, EPOCH, Grant, SlaEntry};
use fairmesh_model::{AccountPath, Share};

use super::{DraftArgs, parsed};
use crate::control::clean;
use crate::output::Exit;

/// How deep accounts are nested at most: deeper ones are a circle.
const DEPTH_MAX: usize = 64;

/// An account as Slurm knows it.
#[derive(Debug, Default)]
struct Account {
    parent: String,
    /// Fairshare; none where it is its parent's.
    shares: Option<u64>,
    cpus: Option<u64>,
    cpu_minutes: Option<u64>,
}

pub(super) fn draft(args: &DraftArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (text, file) = match args.associations.to_str() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            (text, "standard input".to_owned())
        }
        _ => {
            let file = args.associations.display().to_string();
            (crate::emulate::read(&args.associations)?, file)
        }
    };
    let accounts = read(&text, &file)?;
    let (sla, comments) = of_accounts(&accounts)?;
    let Some(signed) = &args.sla else {
        write!(out, "{}", sla.to_toml())?;
        for comment in comments {
            writeln!(out, "# {comment}")?;
        }
        return Ok(Exit::Success);
    };
    let differences = differences(&parsed(signed)?, &sla);
    for difference in &differences {
        writeln!(out, "{difference}")?;
    }
    Ok(match differences.is_empty() {
        true => Exit::Success,
        false => Exit::Failure,
    })
}

/// Reads what `sacctmgr --parsable2 show assoc` prints. Columns go by their names; users' rows are left out.
fn read(text: &str, file: &str) -> anyhow::Result<BTreeMap<String, Account>> {
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
fn of_accounts(accounts: &BTreeMap<String, Account>) -> anyhow::Result<(Sla, Vec<String>)> {
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
        let share = account.shares.map(|shares| Bound {
            amount: Amount::Percent(Share::from_ratio(shares, siblings[account.parent.as_str()])),
            interval: EPOCH,
        });
        let cpu = share.map(|share| Grant {
            share: Some(share),
            ..Grant::default()
        });
        let entry = SlaEntry {
            cpu,
            at_most: account.cpus,
            ..SlaEntry::default()
        };
        sla.entries.insert(path, entry);
    }
    Ok((sla, comments))
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
    let mut path = AccountPath::root();
    for name in names.into_iter().rev() {
        path = path
            .child(name)
            .with_context(|| format!("account `{}`", clean(name)))?;
    }
    Ok(path)
}

/// Entries that say something else than is configured.
fn differences(signed: &Sla, configured: &Sla) -> Vec<String> {
    let line = |entry: Option<&SlaEntry>| {
        entry.map_or_else(
            || "nothing".to_owned(),
            |entry| {
                let cpu = entry
                    .cpu
                    .map(|cpu| cpu.to_text(fairmesh_broker::sla::Resource::Cpu));
                let most = entry.at_most.map(|cpus| format!("at most {cpus} CPUs"));
                let parts: Vec<String> = [cpu, most].into_iter().flatten().collect();
                match parts.is_empty() {
                    true => "no limit".to_owned(),
                    false => parts.join(", "),
                }
            },
        )
    };
    let paths = signed.entries.keys().chain(configured.entries.keys());
    let paths: std::collections::BTreeSet<&AccountPath> = paths.collect();
    let differ = paths.into_iter().filter_map(|path| {
        let (says, does) = (
            line(signed.entries.get(path)),
            line(configured.entries.get(path)),
        );
        (says != does)
            .then(|| format!("{path}: the SLA says {says}, and Slurm is configured to {does}"))
    });
    differ.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASSOC: &str = "Cluster|Account|Par Name|User|Share|GrpTRES|GrpTRESMins\n\
        c|root||||||\nc|root||root|1||\n\
        c|physics|root||30|cpu=600,mem=5T|\nc|physics||ann|1||\nc|cms|physics||1|cpu=150|cpu=9000\n\
        c|atlas|physics||3||\nc|chem|root||10||\nc|idle|root||parent||\n";

    #[test]
    fn shares_and_limits_of_accounts_become_lines_that_are_read_back() {
        let accounts = read(ASSOC, "f").expect("associations");
        let (sla, comments) = of_accounts(&accounts).expect("a draft");
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
        let said = differences(&Sla::parse(&signed, "signed").expect("an SLA"), &sla);
        assert_eq!(
            said,
            [
                "/idle: the SLA says nothing, and Slurm is configured to no limit",
                "/physics: the SLA says 75%, at most 500 CPUs, and Slurm is configured to 75%, at most 600 CPUs",
            ]
        );
        assert_eq!(differences(&sla, &sla), Vec::<String>::new());
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |text: &str| {
            let read = read(text, "f").and_then(|accounts| of_accounts(&accounts));
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
}
