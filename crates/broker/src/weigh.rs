//! What a site's machines are worth to one job: what is free of those that suit it, and the class that has most of
//! what it wishes.
//!
//! Invariant: classes are looked at where they lie; nothing of a class is copied but the name of the best. Of classes
//! that are worth the same the first by name counts.
//! Deliberately not here: whether the SLA lets the job have them (`engine`).

use std::collections::BTreeMap;

use fairmesh_fairshare::charging::{Counted, suitable};
use fairmesh_model::MachineClass;

use crate::engine::Request;
use crate::rank::Known;
use crate::utility::{Class, Matching, Utility, Wishes};

/// Works out what is free of the machines that suit the job, and which class is worth most to it, with the name of
/// that class. `classes` are the free CPUs of each class, empty where they are not known; `wishes` are what the job
/// wishes, and whether weights do not shrink it.
pub fn weigh(
    known: &mut Known,
    classes: &BTreeMap<String, u64>,
    request: &Request<'_>,
    wishes: Option<(&Wishes, bool)>,
) -> Option<(String, Utility)> {
    let counted = Counted {
        gpu: true,
        disk: true,
    };
    // What it is worth, before and after it is divided, and how many of its CPUs are free.
    let (mut most, mut worth) = (0, 0);
    let mut best: Option<(&str, &MachineClass, u64)> = None;
    let prices = known.view.prices.clone();
    if let Some(prices) = prices.as_deref() {
        let (mut free, mut slowest) = (0_u64, None);
        // Both by name, so that one walk over either finds what belongs together.
        let mut said = classes.iter().peekable();
        for (name, class) in suitable(prices, &request.job, counted) {
            while said.next_if(|(of, _)| of.as_str() < name).is_some() {}
            let free_here = said.next_if(|(of, _)| *of == name);
            let free_here = free_here.map_or(0, |(_, of)| *of);
            free = free.saturating_add(free_here);
            slowest = Some(slowest.map_or(class.spec, |spec| class.spec.min(spec)));
            let Some((wishes, normalised)) = wishes else {
                continue;
            };
            let Some(sum) = wishes.sum_above(class, most) else {
                continue;
            };
            most = sum;
            let mean = wishes.mean(sum, Matching::Partial, normalised);
            if mean > worth {
                worth = mean;
                best = Some((name, class, free_here));
            }
        }
        if !classes.is_empty() {
            known.view.free = known.view.free.map(|all| all.min(free));
        }
        known.view.spec = slowest.unwrap_or(known.view.spec);
    }
    let (wishes, normalised) = wishes?;
    known.utility = Some(worth);
    let (name, class, free) = best?;
    let class = Class::of(name, class, free / u64::from(class.cpus));
    let worth = wishes.utility(&class, Matching::Partial, normalised)?;
    Some((name.to_owned(), worth))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use fairmesh_model::{Factor, Millis, PriceList};
    use proptest::prelude::*;

    use super::*;
    use crate::utility::{Choice, ONE, Requirement, Wish};

    fn machines() -> impl Strategy<Value = MachineClass> {
        let named = ("[ab]", "[ab]", 1..4_u32, 1..4_u64, 1..4_u32);
        named.prop_map(|(os, arch, cpus, mem_mib, spec)| MachineClass {
            count: 1,
            cpus,
            mem_mib,
            gpus: 0,
            disk_mib: 0,
            spec: Factor::from_millionths(spec * 500_000),
            properties: BTreeSet::from([format!("os={os}"), format!("arch={arch}")]),
            queues: BTreeSet::new(),
        })
    }

    fn requirement() -> impl Strategy<Value = Requirement> {
        let wish = prop_oneof![
            "[ab]".prop_map(Wish::Os),
            "[ab]".prop_map(Wish::Arch),
            (1..4_u64).prop_map(Wish::MemMib),
            (1..4_u64).prop_map(|s| Wish::Time(Millis(s * 500))),
        ];
        let choice = (wish, 0..=ONE).prop_map(|(wish, value)| Choice { wish, value });
        let options = proptest::collection::vec(choice, 1..4);
        (options, 0..=ONE).prop_map(|(options, weight)| Requirement { options, weight })
    }

    proptest! {
        /// The best class is the one that is worth most of those that suit the job, and free CPUs are of these,
        /// whichever of them the advert names.
        #[test]
        fn the_best_class_and_free_cpus_are_of_those_that_suit_the_job(
            machines in proptest::collection::btree_map("[a-f]", machines(), 1..6),
            classes in proptest::collection::btree_map("[a-g]", 0..9_u64, 0..6),
            requirements in proptest::collection::vec(requirement(), 1..4),
            cpus in 1..3_u64,
            normalised in any::<bool>(),
        ) {
            let wishes = Wishes::new(requirements, Millis(1_000)).expect("valid");
            let request = Request::of_cpus("vo", cpus);
            let suits = |of: &&MachineClass| u64::from(of.cpus) >= cpus;
            let worth = |name: &str, of: &MachineClass| {
                wishes.worth(&Class::of(name, of, 0), Matching::Partial, normalised)
            };
            let mut best = None;
            for (name, of) in machines.iter().filter(|(_, of)| suits(of)) {
                best = best.max(worth(name, of));
            }
            let named = machines.iter().filter(|(_, of)| suits(of));
            let free: u64 = named.filter_map(|(name, _)| classes.get(name)).sum();
            let mut known = Known::default();
            known.view.free = Some(20);
            let machines = PriceList { machines, ..PriceList::default() };
            known.view.prices = Some(Arc::new(machines));
            let found = weigh(&mut known, &classes, &request, Some((&wishes, normalised)));
            prop_assert_eq!(known.utility, Some(best.unwrap_or(0)));
            prop_assert_eq!(found.map(|(_, of)| of.millionths), best);
            let expected = if classes.is_empty() { 20 } else { free.min(20) };
            prop_assert_eq!(known.view.free, Some(expected));
        }
    }
}
