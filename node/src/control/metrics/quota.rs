//! Quotas: what was decided about jobs, what moved between sites, and what is left.
//!
//! Invariant: a node without allocations says nothing of them. Deliberately not here: whose credit it is
//! (`GET /v1/quota`), for accounts are many.

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Now, VoId};
use fairmesh_quota::Totals;
use fairmesh_site::Site;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Sample;
use super::registry::{Labels, counter, counters, signed};
use crate::control::accounts_with_credit;
use crate::driver::{Gone, NodeHandle};

/// What is left of a VO's allocations, in core-milliseconds.
#[derive(Debug, Default)]
pub(crate) struct QuotaSample {
    pub(crate) vo: String,
    /// What is counted, and how much of it there is.
    pub(crate) amounts: [(&'static str, u128); 6],
}

/// Of each VO with allocations, among those with these labels. The node's task adds up some accounts at a time.
pub(super) async fn sample(
    node: &NodeHandle,
    labels: BTreeMap<VoId, String>,
) -> Result<Vec<QuotaSample>, Gone> {
    let vos: Vec<VoId> = labels.keys().copied().collect();
    let accounts = node.ask(move |site, _| accounts_with_credit(site, vos.into_iter()));
    let totals = |site: &Site, now: Now, some: &mut dyn Iterator<Item = (VoId, AccountPath)>| {
        let totals = |(vo, path): (VoId, AccountPath)| {
            let of = site.ledger(vo)?.account_totals(&path, now.wall);
            Some((vo, of))
        };
        some.filter_map(totals).collect()
    };
    let mut sums: BTreeMap<VoId, Totals> = BTreeMap::new();
    for (vo, of) in node.ask_of_each(accounts.await?, totals).await? {
        let sum = sums.entry(vo).or_default();
        *sum = sum.plus(of);
    }
    let of_vo = |(vo, label)| {
        let of = sums.get(&vo)?;
        let amounts = [
            ("here", of.here),
            ("spendable", of.spendable),
            ("held", of.held),
            ("on_the_way", of.on_the_way),
            ("perished", of.perished),
            ("overdraft", of.overdraft),
        ];
        Some(QuotaSample { vo: label, amounts })
    };
    Ok(labels.into_iter().filter_map(of_vo).collect())
}

pub(super) fn register(registry: &mut Registry, sample: &Sample) {
    if sample.quotas.is_empty() {
        return;
    }
    let stats = &sample.quota;
    let holds = counters(
        "outcome",
        [
            ("granted_here", stats.granted_locally),
            ("granted_after_transfer", stats.granted_after_transfer),
            ("over_quota", stats.over_quota),
            ("refused", stats.refused),
        ],
    );
    registry.register("quota_holds", "Jobs that asked, by what was decided", holds);
    let help = "Jobs charged to quotas";
    counter(registry, "quota_commits", help, stats.committed);
    let help = "Requests for rights to members";
    counter(registry, "quota_requests", help, stats.asked);
    let help = "Transfers of rights to members";
    counter(registry, "quota_transfers", help, stats.transfers);
    let help = "Core-milliseconds sent to members";
    counter(registry, "quota_sent_core_ms", help, stats.sent);
    let amounts = Family::<Labels, Gauge>::default();
    for of in &sample.quotas {
        for (state, amount) in of.amounts {
            let labels = vec![("vo", of.vo.clone()), ("state", state.to_owned())];
            let amount = u64::try_from(amount).unwrap_or(u64::MAX);
            amounts.get_or_create(&labels).set(signed(amount));
        }
    }
    let help = "Core-milliseconds of a VO's allocations: here, and as this site knows all sites";
    registry.register("quota_core_ms", help, amounts);
}
