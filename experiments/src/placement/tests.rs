//! The experiments end to end, on few jobs; and that a broker that breaks limits is seen.

use fairmesh_broker::Selector;
use fairmesh_broker::utility::Matching;
use fairmesh_cluster::Seed;
use fairmesh_model::Millis;

use super::clusters::{self, Fate, Rules};
use super::hosts::{GROUP_CAP, Setup, run};
use super::measure::{Measure, RunMeasures};
use super::site::{Faults, SITES, draw};
use super::wishes::{self, Drawn};
use super::{gruber, liars, stale, utility};
use crate::experiment::Extent;

/// Three jobs a host, of so many seeds.
fn few(seeds: u64) -> Extent {
    Extent {
        seeds: (1..=seeds).collect(),
        divisor: 1,
        jobs: 3,
        threads: 2,
    }
}

/// More jobs than a group may have at sites.
fn small(selector: Selector, hosts: usize) -> Setup {
    Setup {
        jobs: 200,
        ..Setup::new(1, Faults::Benign, selector, hosts)
    }
}

#[test]
fn every_selector_ends_all_jobs_within_the_limits() {
    for (name, selector) in Selector::all() {
        let measures = run(small(selector, 2));
        assert_eq!(measures.broken, None, "{name}");
        assert!(measures.group_max <= GROUP_CAP, "{name}");
        for host in &measures.hosts {
            assert_eq!(host.well.len() + host.given_up, host.jobs, "{name}");
        }
        let reached = selector == Selector::Observant || measures.group_max == GROUP_CAP;
        assert!(
            reached,
            "{name}: the limit was never reached, so nothing was tested"
        );
    }
}

/// Sites that do not keep the VO's limit, views of five minutes, and four queues that do not see each other.
#[test]
fn a_part_of_each_site_keeps_its_limit_whatever_others_send() {
    let blind = |by_site| {
        run(Setup {
            by_site,
            sites_enforce: false,
            ..small(Selector::LeastUsed, 4)
        })
    };
    assert_eq!(blind(true).beyond, 0);
    assert!(blind(false).beyond > 0);
}

#[test]
fn a_run_is_a_function_of_its_setup() {
    let setup = small(Selector::Random, 2);
    assert_eq!(run(setup), run(setup));
    assert_ne!(run(setup), run(Setup { seed: 2, ..setup }));
}

#[test]
fn grids_are_as_large_as_they_should_be() {
    for seed in 0..20 {
        let sites = draw(Seed(seed), Faults::BlackHoles, 3);
        assert_eq!(sites.len(), SITES);
        assert!((800..=1_000).contains(&sites.iter().map(|of| of.cpus).sum::<u64>()));
        assert!(sites.iter().all(|of| (1..=of.cpus).contains(&of.limit)));
        assert_eq!(sites.iter().filter(|of| of.is_black_hole).count(), 2);
        assert_eq!(sites.iter().filter(|of| of.lies).count(), 3);
    }
}

#[test]
fn sites_that_lie_are_contradicted_and_honest_ones_are_not() {
    let honest = run(small(Selector::LeastUsed, 1));
    let lied_to = run(Setup {
        liars: 5,
        ..small(Selector::LeastUsed, 1)
    });
    assert_eq!((honest.doubts.wronged(), lied_to.doubts.wronged()), (0, 0));
    assert!(lied_to.doubts.found().iter().any(Option::is_some));
    let delay = |run: &RunMeasures| Measure::Delay.of(run);
    assert!(delay(&lied_to) > delay(&honest));
}

#[test]
fn tables_and_claims_are_of_what_was_run() {
    let few = few(1);
    let outcome = gruber::Outcome::of(&few);
    // Five measures, of three kinds of Grid and as printed.
    assert_eq!(outcome.compared(1).rows.len(), 5 * 4);
    assert_eq!(outcome.figures().len(), 3);
    let claims = outcome.claims();
    assert!(
        claims[0].holds && claims[0].what.contains("150"),
        "{claims:?}"
    );
    assert!(
        !claims.iter().all(|claim| claim.holds),
        "three jobs are not enough for all of it, or nothing is compared"
    );
    let ages = stale::study(&few);
    // One and four hosts with two selectors, and four by site.
    assert_eq!(
        stale::table(&ages).rows.len(),
        (2 * 2 + 1) * stale::AGES_S.len()
    );
    assert_eq!(stale::claims(&ages).len(), 3);
    let study = liars::study(&few);
    assert_eq!(liars::table(&study).rows.len(), 2 * 3 * liars::LIARS.len());
}

#[test]
fn each_job_of_four_clusters_ends_once_where_its_wishes_are_met() {
    let drawn = Drawn::of(Seed(1), 120, Millis(1_000));
    assert_eq!(drawn.jobs.len(), wishes::USERS * wishes::JOBS);
    for matching in [Matching::Partial, Matching::Binary, Matching::All] {
        let fates = clusters::run(&drawn, Rules::new(matching, true));
        assert!(fates.forwards > 0);
        let mut work = 0;
        for (job, fate) in drawn.jobs.iter().zip(&fates.jobs) {
            let Some(Fate::Ran {
                cluster,
                resource,
                assigned,
                ended,
            }) = *fate
            else {
                assert!(matches!(fate, Some(Fate::Failed(_))), "a job was lost");
                continue;
            };
            let class = &drawn.clusters[cluster][resource];
            assert!(job.wishes.utility(class, matching, false).is_some());
            assert!(job.at <= assigned && assigned < ended);
            work += job.wishes.work.0 * 1_000_000 / u64::from(class.spec.millionths());
        }
        assert_eq!(
            work,
            fates.busy.iter().flatten().sum::<u64>(),
            "a job ran twice, or not"
        );
        // Without forwarding nobody's jobs are elsewhere.
        let alone = clusters::run(&drawn, Rules::new(matching, false));
        assert_eq!(alone.forwards, 0);
        for (job, fate) in drawn.jobs.iter().zip(&alone.jobs) {
            let is_home =
                matches!(fate, Some(Fate::Ran { cluster, .. }) if *cluster == job.cluster);
            assert!(is_home || matches!(fate, Some(Fate::Failed(_))));
        }
    }
}

#[test]
fn utility_is_claimed_by_what_was_run() {
    let ways = utility::study(&few(2));
    assert_eq!(utility::table("a", "b", &ways).rows.len(), 4 * 6);
    let claims = utility::claims(&ways);
    let refuses = claims
        .iter()
        .filter(|claim| claim.what.starts_with("MM refuses"));
    assert_eq!(refuses.filter(|claim| claim.holds).count(), 4, "{claims:?}");
}

/// What a broker that does not keep limits would do is told, by what sites were given.
#[cfg(feature = "mutants")]
#[test]
fn a_broker_that_breaks_a_limit_is_seen() {
    let planted = fairmesh_model::mutant::plant("GroupLimitUnchecked");
    let broken = run(small(Selector::LeastUsed, 1)).broken;
    drop(planted);
    let broken = broken.expect("it is seen");
    assert_eq!(broken, "group 0 has 151 CPUs at sites");
}
