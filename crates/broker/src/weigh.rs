//! What a site's machines are worth to one job: what is free of those that suit it, and the class that has most of
//! what it wishes.
//!
//! Invariant: classes are looked at where they lie; nothing of a class is copied but the name of the best.
//! Deliberately not here: whether the SLA lets the job have them (`engine`).

use std::collections::BTreeMap;

use fairmesh_fairshare::charging::{Counted, suitable};

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
    let mut best: Option<(u32, Class<'_>)> = None;
    let prices = known.view.prices.clone();
    if let Some(prices) = prices.as_deref() {
        let (mut free, mut slowest) = (0_u64, None);
        for (name, class) in suitable(prices, &request.job, counted) {
            let free_here = classes.get(name).copied().unwrap_or(0);
            free = free.saturating_add(free_here);
            slowest = Some(slowest.map_or(class.spec, |spec| class.spec.min(spec)));
            let Some((wishes, normalised)) = wishes else {
                continue;
            };
            let class = Class::of(name, class, free_here / u64::from(class.cpus));
            let worth = wishes.worth(&class, Matching::Partial, normalised);
            let held = best.as_ref().map_or(0, |(held, _)| *held);
            if let Some(worth) = worth.filter(|worth| *worth > held) {
                best = Some((worth, class));
            }
        }
        if !classes.is_empty() {
            known.view.free = known.view.free.map(|all| all.min(free));
        }
        known.view.spec = slowest.unwrap_or(known.view.spec);
    }
    let (wishes, normalised) = wishes?;
    known.utility = Some(best.as_ref().map_or(0, |(worth, _)| *worth));
    let (_, class) = best?;
    let worth = wishes.utility(&class, Matching::Partial, normalised)?;
    Some((class.name.to_owned(), worth))
}
