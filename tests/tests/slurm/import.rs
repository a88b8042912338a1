//! What `fairmesh slurm import` makes of a real Slurm's accounts has the order of its Fair Tree: 500 random users with
//! random usage, against the numbers of `sshare`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use fairmesh_tests::slurm::{Accounts, Kind, Slurm, await_that};
use serde_json::Value;

use crate::PROGRAM;

const USERS: u64 = 500;

const ACCOUNTS: u64 = 60;

/// Two months and a year, so that nothing decays, is reset or is charged while the test looks.
const CONF: &str = "PriorityWeightFairshare=100000\nPriorityCalcPeriod=60\nPriorityDecayHalfLife=0\n\
                    PriorityUsageResetPeriod=YEARLY\nPartitionName=debug Nodes=n1 MaxTime=INFINITE State=UP\n";

/// A small generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// The tree as `sacctmgr load` takes it.
///
/// One of six accounts and users has `parent`, one user of some accounts a share of 0: several would tie in Slurm, where
/// Fairmesh serves the one that used less. One user of ten is in two accounts, and one has an association for a partition.
fn tree(random: &mut Random) -> anyhow::Result<String> {
    let name = |account: u64| match account {
        0 => "root".to_owned(),
        account => format!("a{account}"),
    };
    let mut lines: BTreeMap<u64, String> = BTreeMap::new();
    let mut flat = vec![false];
    for account in 1..=ACCOUNTS {
        let above = random.below(account);
        let share = share(random);
        flat.push(share == "parent");
        writeln!(
            lines.entry(above).or_default(),
            "Account - '{}':Description='x':Organization='x':Fairshare={share}",
            name(account)
        )?;
    }
    let mut has_zero = flat.clone();
    for user in 0..USERS {
        let mut accounts = vec![random.below(ACCOUNTS + 1)];
        if random.below(10) == 0 {
            accounts.push((accounts[0] + 1) % (ACCOUNTS + 1));
        }
        for account in accounts {
            let is_zero = random.below(10) == 0;
            let first =
                if is_zero && !std::mem::replace(&mut has_zero[usize::try_from(account)?], true) {
                    "0".to_owned()
                } else {
                    share(random)
                };
            let of_account = lines.entry(account).or_default();
            let head = format!("User - 'u{user}':DefaultAccount='{}'", name(account));
            writeln!(of_account, "{head}:Fairshare={first}")?;
            if random.below(10) == 0 {
                let share = share(random);
                writeln!(of_account, "{head}:Partition='debug':Fairshare={share}")?;
            }
        }
    }
    let mut text = "Cluster - 'fair'\n".to_owned();
    for (account, lines) in lines {
        writeln!(text, "Parent - '{}'\n{lines}", name(account))?;
    }
    Ok(text)
}

fn share(random: &mut Random) -> String {
    match random.below(6) {
        0 => "parent".to_owned(),
        _ => (1 + random.below(1_000)).to_string(),
    }
}

/// An association of a user: account, user and partition.
type Key = (String, String, String);

/// Rows of a command of Slurm's whose columns begin with account, user and partition; those of accounts are left out.
fn rows(
    slurm: &Slurm,
    command: &str,
    arguments: &[&str],
) -> anyhow::Result<Vec<(Key, Vec<String>)>> {
    let text = slurm.run(command, arguments)?;
    let rows = text.lines().map(|line| {
        let mut words = line.split('|').map(|word| word.trim().to_owned());
        let mut next = || words.next().context("a column");
        Ok(((next()?, next()?, next()?), words.collect()))
    });
    let rows: Vec<(Key, Vec<String>)> = rows.collect::<anyhow::Result<_>>()?;
    Ok(rows
        .into_iter()
        .filter(|((_, user, _), _)| !user.is_empty())
        .collect())
}

/// Random usage: one of five has none, but for the first of each account, as accounts of the same level fairshare are
/// merged by the manual and not by the program. Some are multiples of few hours, so that shares and usage make ties.
fn usage(slurm: &Slurm, random: &mut Random) -> anyhow::Result<BTreeMap<Key, (u32, u64)>> {
    let format = "format=account,user,partition,id";
    let mut seen = String::new();
    let used = rows(
        slurm,
        "sacctmgr",
        &["-nP", "show", "assoc", "where", "cluster=fair", format],
    )?;
    let used = used.into_iter().map(|(key, columns)| {
        let is_first = key.0 != seen;
        seen.clone_from(&key.0);
        let used = match random.below(5) {
            0 if !is_first => 0,
            1 => 3_600 * (1 + random.below(20)),
            _ => 1 + random.below(10_000_000),
        };
        Ok((key, (columns[0].parse()?, used)))
    });
    used.collect()
}

/// The path of each association by the rules of the import.
fn paths<'a>(
    folder: &Path,
    keys: impl Iterator<Item = &'a Key>,
) -> anyhow::Result<BTreeMap<Key, String>> {
    let text = fs::read_to_string(folder.join("identity.toml"))?;
    let rules: toml::Table = text.parse()?;
    let rules = rules["identity"].as_array().context("rules")?;
    let word = |rule: &toml::Value, name: &str| Some(rule.get(name)?.as_str()?.to_owned());
    let path = |key: &Key| {
        let (account, user, partition) = key;
        let words = [
            ("account", account),
            ("user", user),
            ("partition", partition),
        ];
        let holds = |rule: &&toml::Value| {
            let holds =
                |(name, is): &(&str, &String)| word(rule, name).is_none_or(|wanted| wanted == **is);
            words.iter().all(holds)
        };
        let rule = rules
            .iter()
            .find(holds)
            .with_context(|| format!("no rule for {key:?}"))?;
        let path = word(rule, "path").context("a path")?;
        Ok((
            key.clone(),
            path.replace("{account}", account).replace("{user}", user),
        ))
    };
    keys.map(path).collect()
}

/// Ranks by path under Fair Tree.
fn ranks(folder: &Path, used: &BTreeMap<String, u64>) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut text = "path,charge\n/,0\n".to_owned();
    for (path, used) in used {
        writeln!(text, "{path},{used}")?;
    }
    fs::write(folder.join("usage.csv"), text)?;
    let arguments = "emulate --policy shares.toml --usage usage.csv --projection fairtree --json";
    let output = std::process::Command::new(PROGRAM)
        .args(arguments.split(' '))
        .current_dir(folder)
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let entries = answer["entries"].as_array().context("entries")?;
    let rank = |entry: &Value| Some((entry["path"].as_str()?.to_owned(), entry["rank"].as_u64()?));
    entries
        .iter()
        .map(|entry| rank(entry).context("a rank"))
        .collect()
}

#[test]
fn five_hundred_users_are_in_the_order_of_sshare() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let kind = Kind {
        name: "fair",
        cpus: 1,
        nodes: 1,
        accounts: Accounts::Slurmdbd,
        conf: CONF,
        plugins: None,
    };
    let Some(slurm) = Slurm::start(&folder.path().join("slurm"), kind)? else {
        return Ok(());
    };
    let mut random = Random(0x5eed_1234_abcd);
    let file = folder.path().join("tree");
    fs::write(&file, tree(&mut random)?)?;
    slurm.run(
        "sacctmgr",
        &["-i", "load", "clean", &file.to_string_lossy()],
    )?;
    slurm.restart_slurmctld()?;
    let used = usage(&slurm, &mut random)?;
    let by_id: Vec<(u32, u64)> = used.values().copied().collect();
    slurm.set_usage(&by_id)?;
    let columns = "account,user,partition,rawusage,fairshare";
    let mut theirs = BTreeMap::new();
    await_that("slurmctld's own numbers", || {
        theirs = rows(&slurm, "sshare", &["-a", "-P", "-n", "-o", columns])?
            .into_iter()
            .collect();
        Ok(theirs.len() == used.len() && theirs.values().any(|columns| columns[1] == "1.000000"))
    })?;
    for (key, (_, used)) in &used {
        ensure!(
            theirs[key][0] == used.to_string(),
            "{key:?}: {:?}, not {used}",
            theirs[key]
        );
    }
    let imported = folder.path().join("imported");
    slurm.run(
        PROGRAM,
        &["slurm", "import", "--write", &imported.to_string_lossy()],
    )?;
    let paths = paths(&imported, used.keys())?;
    let mut by_path: BTreeMap<String, u64> = BTreeMap::new();
    for (key, path) in &paths {
        *by_path.entry(path.clone()).or_default() += used[key].1;
    }
    let ours = ranks(&imported, &by_path)?;
    let row = |(key, path): (&Key, &String)| {
        let fairshare = theirs[key][1].replace('.', "").parse::<u64>()?;
        let rank = *ours
            .get(path)
            .with_context(|| format!("{path} is no entry"))?;
        Ok((rank, std::cmp::Reverse(fairshare), key.clone()))
    };
    let mut rows: Vec<_> = paths.iter().map(row).collect::<anyhow::Result<_>>()?;
    rows.sort();
    is_the_same_order(&rows)
}

/// Whoever is before another here has the greater fairshare in Slurm. Where two tie here, by exact fractions, slurmctld's
/// floats may tell them apart.
fn is_the_same_order(rows: &[(u64, std::cmp::Reverse<u64>, Key)]) -> anyhow::Result<()> {
    let (mut ties, mut missed) = (0, 0);
    for two in rows.windows(2) {
        let [(rank, fairshare, _), (next_rank, next_fairshare, _)] = two else {
            continue;
        };
        if rank == next_rank {
            ties += 1;
            missed += u32::from(fairshare != next_fairshare);
        } else {
            ensure!(
                fairshare < next_fairshare,
                "here one is before the other, and not in Slurm: {two:?}"
            );
        }
    }
    println!(
        "{} associations, {ties} ties, of which slurmctld's floats miss {missed}",
        rows.len()
    );
    ensure!(rows.len() > 500 && ties > 20, "{} and {ties}", rows.len());
    Ok(())
}
