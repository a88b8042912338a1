//! What each selector does with three sites, and what it remembers.

use fairmesh_cluster::Seed;
use proptest::prelude::*;

use super::*;

const WALL: Millis = Millis::from_secs(3_600);

/// Three sites of 100 CPUs that can start a job now; `used` CPUs of each are not free.
fn sites(used: [u64; 3]) -> Vec<Candidate<'static>> {
    let site = |(name, used): (&'static str, u64)| Candidate {
        site: name,
        now: true,
        total: 100,
        used,
        free: 100 - used,
        ..Candidate::default()
    };
    ["a", "b", "c"].into_iter().zip(used).map(site).collect()
}

/// Names in order.
fn ranked(chooser: &Chooser, candidates: &[Candidate<'_>], seed: u64) -> String {
    let mut stream = Seed(seed).stream("selector");
    let order = chooser.rank(candidates, WALL, &mut |bound| stream.below(bound));
    order
        .into_iter()
        .map(|index| candidates[index].site)
        .collect()
}

fn chooser(selector: Selector) -> Chooser {
    Chooser::new(selector)
}

#[test]
pub(crate) fn the_least_used_is_used_with_what_was_sent_since_the_view() {
    let mut sites = sites([50, 40, 60]);
    sites
        .iter_mut()
        .for_each(|site| site.known_at = WallTime(10));
    let mut lu = chooser(Selector::LeastUsed);
    assert_eq!(ranked(&lu, &sites, 1), "bac");
    lu.note_sent("b", "early", 30, WallTime(8));
    assert_eq!(ranked(&lu, &sites, 1), "acb", "it may be on its way");
    lu.note_arrived("b", "early", WallTime(9));
    assert_eq!(ranked(&lu, &sites, 1), "bac", "the view has it already");
    lu.note_sent("b", "1", 15, WallTime(10));
    assert_eq!(ranked(&lu, &sites, 1), "abc");
    lu.note_ended("b", "1");
    assert_eq!(ranked(&lu, &sites, 1), "bac");
    // Fractions are compared: 30 of 100 are less than 20 of 50.
    sites[0].used = 20;
    sites[0].total = 50;
    sites[1].used = 30;
    assert_eq!(ranked(&lu, &sites, 1), "bac");
    // Of equal ones that with more free CPUs, then by name.
    let mut equal = super::tests::sites([50, 50, 50]);
    let lu = chooser(Selector::LeastUsed);
    equal[1].free = 60;
    assert_eq!(ranked(&lu, &equal, 1), "bac");
    let mut own = chooser(Selector::LeastUsedByUs);
    own.note_sent("a", "2", 1, WallTime(0));
    assert_eq!(ranked(&own, &sites, 1), "bca");
}

#[test]
pub(crate) fn the_robin_goes_round_over_sites_that_come_and_go() {
    let mut rr = chooser(Selector::RoundRobin);
    let sites = sites([0, 0, 0]);
    let mut picks = String::new();
    for job in 0..7_u64 {
        // At the fourth job `a` is not there.
        let there = if job == 3 { &sites[1..] } else { &sites[..] };
        let site = ranked(&rr, there, 1)[..1].to_owned();
        rr.note_sent(&site, &job.to_string(), 1, WallTime(job));
        picks += &site;
    }
    assert_eq!(picks, "abcbcab");
}

#[test]
pub(crate) fn the_least_recently_used_comes_first_and_the_never_used_before_it() {
    let mut lru = chooser(Selector::LeastRecentlyUsed);
    let sites = sites([0, 0, 0]);
    assert_eq!(ranked(&lru, &sites, 1), "abc");
    for site in ["a", "c", "a"] {
        lru.note_sent(site, site, 1, WallTime(0));
    }
    assert_eq!(ranked(&lru, &sites, 1), "bca");
}

#[test]
pub(crate) fn the_observant_sends_one_more_when_one_has_started() {
    let mut obs = chooser(Selector::Observant);
    let sites = sites([0, 0, 0]);
    assert_eq!(ranked(&obs, &sites, 1), "abc");
    obs.note_sent("a", "1", 1, WallTime(0));
    assert_eq!(ranked(&obs, &sites, 1), "bc");
    obs.note_started("a", "1", WallTime(0));
    assert_eq!(ranked(&obs, &sites, 1), "bca");
    obs.note_sent("a", "2", 1, WallTime(0));
    assert_eq!(ranked(&obs, &sites, 1), "bc");
    obs.note_ended("a", "2");
    assert_eq!(
        ranked(&obs, &sites, 1),
        "bca",
        "one that failed is waited for no longer"
    );
}

#[test]
pub(crate) fn sites_that_start_now_come_first_but_for_the_naive() {
    let mut sites = sites([10, 20, 30]);
    sites[0].now = false;
    for (name, selector) in Selector::all().filter(|(_, selector)| *selector != Selector::Naive) {
        assert!(
            ranked(&chooser(selector), &sites, 1).ends_with('a'),
            "{name}"
        );
    }
    let naive: Vec<String> = (0..20)
        .map(|seed| ranked(&chooser(Selector::Naive), &sites, seed))
        .collect();
    assert!(naive.iter().any(|order| order.starts_with('a')));
}

#[test]
pub(crate) fn fairness_and_ends_are_weighed_with_waits() {
    let mut sites = sites([0, 0, 0]);
    let waits = [None, Some(Millis(1_000)), Some(Millis(4_000))];
    for (site, (factor, wait)) in sites
        .iter_mut()
        .zip([800_000, 500_000, 900_000].into_iter().zip(waits))
    {
        site.factor = Some(factor);
        (site.now, site.wait) = (false, wait);
    }
    // 0.8 − 1 (nobody knows), 0.5 − 0.25, 0.9 − 1.
    assert_eq!(ranked(&chooser(Selector::Fair), &sites, 1), "bca");
    sites[0].now = true;
    assert_eq!(ranked(&chooser(Selector::Fair), &sites, 1), "abc");
    sites[0].factor = None;
    sites[2].now = true;
    assert_eq!(ranked(&chooser(Selector::Fair), &sites, 1), "cab");
    // An hour at half the speed ends behind an hour that waits a second.
    sites[0].spec = Factor::parse("0.5").expect("a factor");
    assert_eq!(ranked(&chooser(Selector::Eta), &sites, 1), "cab");
    sites.iter_mut().for_each(|site| site.now = false);
    assert_eq!(ranked(&chooser(Selector::Eta), &sites, 1), "bca");
}

#[test]
pub(crate) fn utility_decides_then_ownership_then_load() {
    let mut sites = sites([50, 40, 30]);
    (sites[0].utility, sites[1].utility, sites[2].utility) = (700_000, 700_000, 600_000);
    let utility = chooser(Selector::Utility);
    assert_eq!(ranked(&utility, &sites, 1), "bac");
    sites[0].own = true;
    assert_eq!(ranked(&utility, &sites, 1), "abc");
}

#[test]
fn any_site_is_as_likely_as_any_other_at_random() {
    let sites = sites([0, 50, 99]);
    for selector in [Selector::Random, Selector::Naive] {
        let mut first = [0_u32; 3];
        for seed in 0..3_000 {
            let site = ranked(&chooser(selector), &sites, seed).chars().next();
            first[usize::try_from(u32::from(site.expect("a site")) - u32::from('a'))
                .expect("small")] += 1;
        }
        assert!(
            first.iter().all(|count| (900..1_100).contains(count)),
            "{first:?}"
        );
    }
}

#[test]
fn names_are_read_back_and_others_refused_with_a_list() {
    for (name, selector) in Selector::all() {
        assert_eq!(name.parse(), Ok(selector));
        assert_eq!(name.to_uppercase().parse(), Ok(selector));
        assert_eq!(selector.to_string(), name);
    }
    let error = "best".parse::<Selector>().expect_err("none");
    assert!(
        error.starts_with("`best` is no selector: ra, rr, lru, lu, "),
        "{error}"
    );
}

proptest! {
    /// The order of the candidates in the caller's list means nothing, and the seed means everything.
    #[test]
    fn the_order_of_the_list_means_nothing(used in any::<[u8; 3]>(), now in any::<[bool; 3]>(), seed in 0..50_u64, turn in 0..3_usize) {
        let mut sites = sites(used.map(|used| u64::from(used).min(100)));
        sites.iter_mut().zip(now).for_each(|(site, now)| site.now = now);
        let mut turned = sites.clone();
        turned.rotate_left(turn);
        for (_, selector) in Selector::all() {
            let mut chooser = Chooser::new(selector);
            chooser.note_sent("b", "1", 1, WallTime(0));
            let order = ranked(&chooser, &sites, seed);
            prop_assert_eq!(&order, &ranked(&chooser, &turned, seed));
            prop_assert_eq!(order.len(), if selector == Selector::Observant { 2 } else { 3 });
        }
    }
}
