//! The machines of simulated sites.
//!
//! Invariant: a site has the same machines in every run; two sites differ in number and speed, so
//! that a job costs more at one than at another. Some have a property, and some serve one queue only.

use std::collections::BTreeSet;

use fairmesh_model::{Factor, MachineClass, PriceList};
use fairmesh_site::Pattern;

/// The first so many classes of a site's machines, and how their machines are named.
pub(crate) fn of_site(site: usize, classes: usize) -> (PriceList, Vec<(Pattern, String)>) {
    let nth = u32::try_from(site).expect("few sites");
    let class = |count, cpus, gib: u64, gpus, disk_gib: u64, millionths| MachineClass {
        count,
        cpus,
        mem_mib: gib << 10,
        gpus,
        disk_mib: disk_gib << 10,
        spec: Factor::from_millionths(millionths),
        properties: BTreeSet::new(),
        queues: BTreeSet::new(),
    };
    let all = [
        ("thin", "n*", class(20 + nth, 16, 64, 0, 100, 1_000_000)),
        (
            "fat",
            "f*",
            class(4, 64, 1_024, 0, 1_000, 1_250_000 + nth * 7),
        ),
        ("gpu", "g*", class(2, 32, 256, 4, 500, 1_500_001)),
    ];
    let labelled = |(name, host, class): (&'static str, &'static str, MachineClass)| {
        let only = |of: &str, label: &str| (name == of).then(|| label.to_owned());
        let class = MachineClass {
            properties: only("fat", "ib").into_iter().collect(),
            queues: only("gpu", "long").into_iter().collect(),
            ..class
        };
        (name, host, class)
    };
    let all = all.into_iter().take(classes).map(labelled);
    let hosts = all
        .clone()
        .map(|(name, host, _)| (Pattern::parse(host), name.to_owned()));
    let prices = PriceList {
        machines: all
            .clone()
            .map(|(name, _, class)| (name.to_owned(), class))
            .collect(),
        ..PriceList::default()
    };
    (prices, hosts.collect())
}
