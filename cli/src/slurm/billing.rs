//! What Slurm charges otherwise than Fairmesh does: `TRESBillingWeights` of partitions and `UsageFactor` of QOS.
//!
//! Fairmesh charges what a job holds, by the charter's own rule and by the factors of its site, and reads neither.
//! Invariant: this is a notice and no finding: a cluster may have both for Slurm's own limits.

use fairmesh_model::clean;
use fairmesh_schedulers::command::Commands;
use fairmesh_schedulers::slurm::cluster::Cluster;

/// The notices of a cluster.
///
/// # Errors
/// If Slurm is away.
pub(super) async fn notices(commands: &Commands) -> anyhow::Result<Vec<String>> {
    let partitions = commands
        .ask("scontrol", &["-o", "show", "partition"])
        .await?;
    let cluster = Cluster::ask(commands).await?;
    let qos = match cluster.has_slurmdbd() {
        true => {
            commands
                .ask(
                    "sacctmgr",
                    &["-nP", "show", "qos", "format=Name,UsageFactor"],
                )
                .await?
        }
        false => String::new(),
    };
    Ok([of_partitions(&partitions), of_qos(&qos)]
        .into_iter()
        .flatten()
        .collect())
}

/// Of partitions with weights, a line each.
fn of_partitions(text: &str) -> Option<String> {
    let word = |line: &str, key: &str| {
        let value = line
            .split_whitespace()
            .find_map(|word| word.strip_prefix(key));
        value.filter(|value| *value != "(null)").map(clean)
    };
    let weighted = text
        .lines()
        .filter(|line| word(line, "TRESBillingWeights=").is_some());
    let names: Vec<String> = weighted
        .filter_map(|line| word(line, "PartitionName="))
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "TRESBillingWeights of {} bill nothing here: Fairmesh charges the CPUs that a job holds, or by the \
             charter's `charging`; `{{ weights = … }}` there does the like at every site (docs/charging.md)",
            names.join(", ")
        )
    })
}

/// Of QOS whose factor is not 1: rows `name|1.000000`.
fn of_qos(text: &str) -> Option<String> {
    let rows = text.lines().filter_map(|line| line.rsplit_once('|'));
    let is_one = |factor: &str| {
        let (whole, part) = factor.split_once('.').unwrap_or((factor, ""));
        whole == "1" && part.trim_matches('0').is_empty()
    };
    let others = rows.filter(|(_, factor)| !factor.is_empty() && !is_one(factor));
    let short = |factor: &str| match factor.contains('.') {
        true => factor
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
        false => factor.to_owned(),
    };
    let named: Vec<String> = others
        .map(|(name, factor)| format!("{} ({})", clean(name), clean(&short(factor))))
        .collect();
    (!named.is_empty()).then(|| {
        format!(
            "UsageFactor of QOS {} changes nothing here: Fairmesh charges their jobs in full; a line under \
             [charging.qos] in fairmesh.toml does the like (docs/charging.md)",
            named.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_slurm_bills_otherwise_is_named() {
        let partitions = "PartitionName=main State=UP\nPartitionName=gpu State=UP TRESBillingWeights=CPU=1.0,Mem=0.25G\n\
                          PartitionName=old TRESBillingWeights=(null)\n";
        let said = of_partitions(partitions).expect("one");
        assert!(
            said.starts_with("TRESBillingWeights of gpu bill nothing"),
            "{said}"
        );
        assert_eq!(of_partitions("PartitionName=main State=UP\n"), None);
        let said =
            of_qos("normal|1.000000\ncheap|0.100000\nfree|0.000000\ndear|10.000000\nnone|\n")
                .expect("three");
        assert!(
            said.starts_with("UsageFactor of QOS cheap (0.1), free (0), dear (10) changes"),
            "{said}"
        );
        assert_eq!(of_qos("normal|1.000000\nlong|1\n"), None);
    }
}
