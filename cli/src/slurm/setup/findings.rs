//! What a cluster lacks to be scheduled by Fairmesh, one finding at a time, each with its mend.
//!
//! Invariant: what depends on the cluster's configuration is decided from it alone, so that tests can
//! show each finding; what depends on this machine is asked at the end.
//! Deliberately not here: mending.

use std::fs::File;
use std::path::Path;

use fairmesh_node::config::Config;
use fairmesh_node::config::slurm::SlurmTable;
use fairmesh_node::users::{Uids, uids};
use fairmesh_schedulers::command::CommandError;
use fairmesh_schedulers::slurm::SlurmSettings;
use fairmesh_schedulers::slurm::cluster::{Cluster, Finished};

use super::super::Place;
use super::finding;
use super::quota::QuotaFiles;
use crate::schedulers::command::silent_sockets;

/// Everything that is missing.
pub(super) fn of(
    place: &Place,
    cluster: Result<Cluster, CommandError>,
    file: &Path,
    quota: Option<&QuotaFiles>,
) -> Vec<(String, String)> {
    let mut findings = Vec::new();
    match cluster {
        Err(error) => {
            let mend = "start slurmctld, or name Slurm's configuration in slurm.slurm_conf";
            findings.push(finding(error.to_string(), mend));
        }
        Ok(cluster) => {
            findings.extend(of_priorities(&cluster, &place.table));
            findings.extend(of_usage(&cluster, &place.table.slurm));
            findings.extend(of_rights(&cluster, file));
            findings.extend(quota.into_iter().flat_map(|files| files.findings(&cluster)));
        }
    }
    findings.extend(silent_sockets(&place.pair.sockets));
    findings
}

fn of_priorities(cluster: &Cluster, table: &SlurmTable) -> Vec<(String, String)> {
    let mut findings = Vec::new();
    let restart = "in slurm.conf, then restart slurmctld";
    let kind = cluster.value("PriorityType").unwrap_or("priority/basic");
    if kind != "priority/multifactor" {
        findings.push(finding(
            format!("PriorityType is {kind}, which knows no site factor"),
            format!("write PriorityType=priority/multifactor {restart}"),
        ));
    }
    let weight = |name: &str| -> u64 {
        let value = cluster.value(&format!("PriorityWeight{name}"));
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    if weight("FairShare") > 0 {
        findings.push(finding(
            "PriorityWeightFairshare is above 0: Slurm's own fairshare, which sees this cluster \
             only, counts beside Fairmesh",
            "write PriorityWeightFairshare=0 in slurm.conf, then `scontrol reconfigure`",
        ));
    }
    let others = ["Age", "Assoc", "JobSize", "Partition", "QOS"].map(weight);
    let others = others.into_iter().chain(weights_of_tres(cluster));
    let others = others.fold(0, u64::saturating_add);
    if others > u64::from(table.slurm.common.scale.range) {
        findings.push(finding(
            format!(
                "the other weights add up to {others}, slurm.range is {}",
                table.slurm.common.scale.range
            ),
            "raise slurm.range in fairmesh.toml, or lower the PriorityWeights",
        ));
    }
    // Where the node leaves the loops to the unit, that is written for the plug-in.
    let is_agreed = cluster.has_our_plugin() && !table.with_node;
    if let Some(plugin) = cluster.value("PrioritySiteFactorPlugin")
        && !is_agreed
    {
        findings.push(finding(
            format!("PrioritySiteFactorPlugin={plugin} sets the site factors, too"),
            "use either the plug-in or `fairmesh slurm sync`, never both; with the plug-in write \
             with_node = false under [slurm]",
        ));
    }
    findings
}

/// The weights of the list `PriorityWeightTRES`, such as `CPU=2000,GRES/gpu=3000`: each is the most that its TRES
/// adds to a priority.
fn weights_of_tres(cluster: &Cluster) -> impl Iterator<Item = u64> {
    let list = cluster.value("PriorityWeightTRES").unwrap_or_default();
    let weights = list.split(',').filter_map(|entry| entry.rsplit_once('='));
    let whole = |value: &str| value.split('.').next()?.trim().parse().ok();
    weights.filter_map(move |(_, value)| whole(value))
}

fn of_usage(cluster: &Cluster, settings: &SlurmSettings) -> Vec<(String, String)> {
    match cluster.finished(settings) {
        Err(lack) => vec![finding(
            lack,
            "write JobCompType=jobcomp/filetxt and JobCompLoc=/var/log/slurm/jobcomp.log in \
             slurm.conf, then restart slurmctld",
        )],
        Ok(Finished::Sacct) => Vec::new(),
        Ok(Finished::File(path)) => match File::open(&path) {
            Ok(_) => Vec::new(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => vec![finding(
                format!("{} cannot be read ({error})", path.display()),
                "run `fairmesh slurm run` as slurmctld's user, or grant its group to read it",
            )],
        },
        Ok(Finished::Spool(path)) if path.is_dir() => Vec::new(),
        Ok(Finished::Spool(path)) => vec![finding(
            format!("the hook's spool {} is no folder", path.display()),
            format!("install -d -o slurm -g slurm -m 0750 {}", path.display()),
        )],
    }
}

/// Slurm takes site factors from root, from its own user and, with slurmdbd, from operators.
fn of_rights(cluster: &Cluster, file: &Path) -> Vec<(String, String)> {
    let slurm_user = cluster.value("SlurmUser").unwrap_or_default();
    let number = slurm_user
        .rsplit_once('(')
        .map(|(_, rest)| rest.trim_end_matches(')'));
    let slurm_uid: Option<u32> = number.and_then(|number| number.parse().ok());
    let mut findings = Vec::new();
    let own = rustix::process::geteuid().as_raw();
    if own != 0 && Some(own) != slurm_uid && !cluster.has_slurmdbd() {
        findings.push(finding(
            format!("user {own} may not set site factors"),
            format!("run `fairmesh slurm run` as {slurm_user}"),
        ));
    }
    let writers = Config::load(file);
    let writers = writers.map(|config| uids(&config.sockets.writers, &Uids::new()).0);
    if let (Ok(writers), Some(uid)) = (writers, slurm_uid)
        && uid != 0
        && !writers.values().any(|writer| *writer == uid)
    {
        let name = slurm_user.split('(').next().unwrap_or(slurm_user);
        findings.push(finding(
            format!("Slurm's user {name} may not report usage to the node"),
            format!("write writers = [\"root\", \"{name}\"] under [sockets], and reload the node"),
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let table = SlurmTable::defaults(Path::new("/d"));
        let cluster = Cluster::parse(text);
        let mut findings = of_priorities(&cluster, &table);
        findings.extend(of_usage(&cluster, &table.slurm));
        findings.into_iter().map(|(problem, _)| problem).collect()
    }

    const GOOD: &str = "PriorityType = priority/multifactor\nPriorityWeightAge = 1000\n\
                        AccountingStorageType = accounting_storage/slurmdbd\n";

    #[test]
    fn a_good_cluster_lacks_nothing() {
        assert!(problems(GOOD).is_empty());
    }

    #[test]
    fn each_lack_is_found() {
        for (line, words) in [
            ("PriorityType = priority/basic\n", "knows no site factor"),
            ("PriorityWeightFairShare = 10\n", "own fairshare"),
            ("PriorityWeightQOS = 1500000000\n", "the other weights"),
            (
                "PriorityWeightTRES = CPU=999999000,GRES/gpu=1.5\n",
                "the other weights add up to 1000000001",
            ),
            ("PrioritySiteFactorPlugin = site_factor/x\n", "too"),
            ("PrioritySiteFactorPlugin = site_factor/fairmesh\n", "too"),
            (
                "AccountingStorageType = accounting_storage/none\n",
                "neither slurmdbd",
            ),
        ] {
            let found = problems(&format!("{GOOD}{line}"));
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert!(found[0].contains(words), "{found:?}");
        }
    }
}
