//! Of `fairmesh slurm check`: whether jobs are held to the quotas that there are.
//!
//! Invariant: what is said follows from the node's answer and the cluster's configuration. Deliberately not here: what
//! holding them needs (`setup`).

use std::path::Path;

use fairmesh_api::{Answer, QuotaBody};
use fairmesh_schedulers::slurm::cluster::Cluster;

use super::{Place, setup};

/// What is to be said of quotas, and whether jobs are held to them where they are to be.
pub(super) async fn quotas(place: &Place, config: &Path) -> anyhow::Result<(Vec<String>, bool)> {
    let control = place.pair.sockets.control();
    let (answer, _): (Answer<QuotaBody>, _) = control.get("/v1/quota", &[]).await?;
    let accounts = answer.body.accounts.iter().filter(|of| of.mode != "off");
    let cluster = Cluster::ask(&place.pair.scheduler.commands).await?;
    let lacks = setup::quota_lacks(place, &cluster, config)?;
    Ok(of_quotas(place.table.slurm.quota, accounts.count(), lacks))
}

fn of_quotas(is_asked: bool, accounts: usize, lacks: Vec<String>) -> (Vec<String>, bool) {
    let with = |words: String| (vec![words], true);
    match (is_asked, accounts, lacks.is_empty()) {
        (false, 0, _) => (Vec::new(), true),
        (false, accounts, _) => with(format!(
            "{accounts} accounts have quotas here (`fairmesh quota show`), and no job of this Slurm is held to them: \
             write quota = true in [slurm], and see `fairmesh slurm setup`"
        )),
        (true, accounts, true) => with(format!(
            "jobs are held to quotas when they are submitted and before they start; {accounts} accounts have one"
        )),
        (true, _, false) => {
            let words = lacks.into_iter().map(|lacks| format!("quotas: {lacks}"));
            (words.collect(), false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_whether_jobs_are_held_to_quotas() {
        let lack = || vec!["there is no PrologSlurmctld; write it".to_owned()];
        for (is_asked, accounts, lacks, words, is_held) in [
            (false, 0, Vec::new(), "", true),
            (false, 2, Vec::new(), "2 accounts have quotas here", true),
            (true, 2, Vec::new(), "jobs are held to quotas when", true),
            (
                true,
                0,
                lack(),
                "quotas: there is no PrologSlurmctld",
                false,
            ),
        ] {
            let (said, held) = of_quotas(is_asked, accounts, lacks);
            assert!(said.concat().starts_with(words), "{said:?}");
            assert_eq!(held, is_held, "{said:?}");
        }
    }
}
