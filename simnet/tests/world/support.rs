//! Small worlds for stories.
//!
//! Invariant: a story holds for every seed it is told with; on a failure the seed and the last
//! events are printed.

use fairmesh_cluster::Seed;
use fairmesh_model::{Millis, UsageRecord, WallTime};
use fairmesh_site::{Reported, Timing};
use simnet::vo::{HOUR, OwnerSpec, START, Vo, VoSpec, job};
use simnet::{World, WorldSpec};

pub(crate) const SYNC: Millis = Millis(5_000);

/// Tells a story with several seeds.
pub(crate) fn with_seeds(story: impl Fn(Seed)) {
    for seed in [1, 2, 3, 5, 8] {
        let told = Told(seed);
        story(Seed(seed));
        std::mem::forget(told);
    }
}

struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        eprintln!("the story failed with seed {}", self.0);
    }
}

pub(crate) fn owner() -> OwnerSpec {
    OwnerSpec {
        timing: Timing {
            publish: Millis(5_000),
            heartbeat: Millis(30_000),
            sync: SYNC,
            request_timeout: Millis(6_000),
            silence: Millis(120_000),
            ..Timing::default()
        },
        ..OwnerSpec::default()
    }
}

/// The specification of `sites` members of one VO.
pub(crate) fn spec(sites: usize) -> (WorldSpec, Vo) {
    let vo = Vo::found(0, VoSpec::small("grid", sites)).expect("a valid VO");
    let spec = WorldSpec::of_vos(sites, std::slice::from_ref(&vo), &owner());
    (spec, vo)
}

/// `sites` members of one VO, who have met.
pub(crate) fn grid(seed: Seed, sites: usize) -> (World, Vo) {
    let (spec, vo) = spec(sites);
    met(World::founded(seed, spec, std::slice::from_ref(&vo)), vo)
}

pub(crate) fn met(mut world: World, vo: Vo) -> (World, Vo) {
    world.run_for(Millis(20_000));
    assert!(world.agree(vo.id), "{}", world.log().lines().join("\n"));
    (world, vo)
}

/// A job of an hour on ten cores that has just ended.
pub(crate) fn a_job(world: &World, node: usize, name: &str) -> UsageRecord {
    let end = START.0 + world.now().0;
    let ran = (WallTime(end - HOUR.0), WallTime(end));
    let user = format!("u{}", node % 4);
    job(name, "grid", ("g0", &user), ran, 10)
}

/// Reports such a job at a node.
pub(crate) fn report(world: &mut World, node: usize, name: &str) -> Option<Reported> {
    let record = a_job(world, node, name);
    world.report(node, vec![record])
}

/// All charge that a node knows of in the VO, core-milliseconds.
pub(crate) fn charge_at(world: &World, node: usize, vo: &Vo) -> u64 {
    let site = world.site(node).expect("it runs");
    let by_account = site.usage_by_account(Some(vo.id));
    by_account.values().map(|counters| counters.charge).sum()
}

/// What one such job is charged.
pub(crate) const CHARGE: u64 = 10 * HOUR.0;
