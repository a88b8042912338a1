//! What a site's machines are worth to one job: what is free of those that suit it, and the class that has most of
//! what it wishes.
//!
//! Invariant: the answer is that of the price list itself, class by class. Of classes that are worth the same the first by
//! name counts.
//! Deliberately not here: whether the SLA lets the job have them (`engine`).

use crate::engine::Request;
use crate::machines::Classes;
use crate::rank::Known;
use crate::utility::Wishes;

/// Works out what is free of the machines that suit the job, and which class is worth most to it: its place among them.
/// `wishes` are what the job wishes, and whether weights do not shrink it.
pub fn weigh(
    known: &mut Known,
    request: &Request<'_>,
    wishes: Option<(&Wishes, bool)>,
) -> Option<usize> {
    let view = &mut known.view;
    let mut search = wishes.map(|(wishes, normalised)| wishes.search(normalised));
    if let Some(machines) = &view.machines {
        let (mut free, mut slowest) = (0_u64, None);
        for (first, block, suit) in machines.suitable(&request.job) {
            if suit == 0 {
                continue;
            }
            let classes = view.classes.get(first..).unwrap_or_default();
            for (bit, of_class) in (0..Classes::BITS).zip(classes) {
                let suits = suit >> bit & 1 == 1;
                free = free.saturating_add(if suits { *of_class } else { 0 });
            }
            slowest = slowest.into_iter().chain(block.slowest(suit)).min();
            if let Some(search) = &mut search {
                search.look(first, block, suit);
            }
        }
        if !view.classes.is_empty() {
            view.free = view.free.map(|all| all.min(free));
        }
        view.spec = slowest.unwrap_or(view.spec);
    }
    let best = search.as_ref().and_then(|search| search.best);
    known.utility = search.map(|_| best.map_or(0, |(worth, _)| worth));
    best.map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fairmesh_fairshare::charging::{Counted, suitable};
    use fairmesh_model::{Factor, MachineClass, Millis, PriceList};
    use proptest::prelude::*;

    use super::*;
    use crate::machines::Machines;
    use crate::utility::{Choice, Class, Matching, ONE, Requirement, Wish};

    /// Names that machines and jobs have by chance; a second `os=` is a tag, and no operating system.
    fn property() -> impl Strategy<Value = String> {
        prop_oneof!["os=[ab]", "arch=[ab]", "[ab]"]
    }

    fn machines() -> impl Strategy<Value = MachineClass> {
        let amounts = (1..4_u32, 1..4_u64, 0..2_u32, 0..3_u64, 1..4_u32);
        let properties = proptest::collection::btree_set(property(), 0..4);
        let queues = proptest::collection::btree_set("[pq]", 0..2);
        let named = (amounts, properties, queues);
        named.prop_map(
            |((cpus, mem_mib, gpus, disk_mib, spec), properties, queues)| MachineClass {
                count: 1,
                cpus,
                mem_mib,
                gpus,
                disk_mib,
                spec: Factor::from_millionths(spec * 500_000),
                properties,
                queues,
            },
        )
    }

    fn requirement() -> impl Strategy<Value = Requirement> {
        let wish = prop_oneof![
            "[ab]?".prop_map(Wish::Os),
            "[ab]".prop_map(Wish::Arch),
            property().prop_map(Wish::Tag),
            (1..4_u64).prop_map(Wish::Cpus),
            (1..4_u64).prop_map(Wish::MemMib),
            (0..3_u64).prop_map(Wish::DiskMib),
            (1..4_u32).prop_map(|spec| Wish::Spec(Factor::from_millionths(spec * 500_000))),
            (0..4_u64).prop_map(|s| Wish::Time(Millis(s * 500))),
        ];
        let choice = (wish, 0..=ONE).prop_map(|(wish, value)| Choice { wish, value });
        let options = proptest::collection::vec(choice, 1..4);
        (options, 0..=ONE).prop_map(|(options, weight)| Requirement { options, weight })
    }

    proptest! {
        /// The best class is the first of those that are worth most of those that suit the job, and free CPUs are of
        /// these, whichever of them the advert names; as the price list itself has it, also of more than 64 classes.
        #[test]
        fn the_best_class_and_free_cpus_are_of_those_that_suit_the_job(
            machines in prop_oneof![
                15 => proptest::collection::btree_map("[a-f]", machines(), 1..6),
                1 => proptest::collection::btree_map("[a-f]{3}", machines(), 60..70),
            ],
            classes in proptest::collection::btree_map("[a-g]{1,3}", 0..9_u64, 0..6),
            requirements in proptest::collection::vec(requirement(), 1..4),
            amounts in (1..5_u64, 0..5_u64, 0..2_u64, 0..4_u64, 0..3_u32),
            queue in proptest::option::of("[pq]"),
            properties in proptest::collection::vec(property(), 0..2),
            normalised in any::<bool>(),
        ) {
            let wishes = Wishes::new(requirements, Millis(1_000)).expect("valid");
            let mut request = Request::of_cpus("vo", amounts.0);
            let held = &mut request.job.held;
            (held.mem_mib, held.gpus, held.disk_mib, held.nodes) =
                (amounts.1, amounts.2, amounts.3, amounts.4);
            (request.job.queue, request.job.properties) = (queue.as_deref(), &properties);
            let prices = Arc::new(PriceList { machines, ..PriceList::default() });
            let counted = Counted { gpu: true, disk: true };
            let suits: Vec<_> = suitable(&prices, &request.job, counted).collect();
            let worth = |name: &str, of: &MachineClass| {
                wishes.worth(&Class::of(name, of, 0), Matching::Partial, normalised)
            };
            let mut best: Option<(u32, &str)> = None;
            for (name, of) in &suits {
                let worth = worth(name, of);
                if worth > best.map(|(most, _)| most) {
                    best = worth.map(|worth| (worth, *name));
                }
            }
            let free: u64 = suits.iter().filter_map(|(name, _)| classes.get(*name)).sum();
            let laid_out = Arc::new(Machines::new(Arc::clone(&prices)));
            let mut known = Known::default();
            known.view.free = Some(20);
            known.view.machines = Some(Arc::clone(&laid_out));
            known.view.classes = laid_out.lay_out(&classes);
            let found = weigh(&mut known, &request, Some((&wishes, normalised)));
            prop_assert_eq!(known.utility, Some(best.map_or(0, |(worth, _)| worth)));
            let found = found.map(|index| laid_out.class(index).0);
            prop_assert_eq!(found, best.map(|(_, name)| name));
            let expected = if classes.is_empty() { 20 } else { free.min(20) };
            prop_assert_eq!(known.view.free, Some(expected));
            let slowest = suits.iter().map(|(_, of)| of.spec).min();
            prop_assert_eq!(known.view.spec, slowest.unwrap_or_default());
        }
    }
}
