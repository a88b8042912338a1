//! Capacity: a site can distort no more than its own share, and a refusal leaves no trace.

use fairmesh_model::{Counters, SiteId, Span};
use fairmesh_usage::{Applied, Bound, Refused};
use proptest::prelude::*;

use crate::support::{AMPLE, Writer, any_steps, empty, history, hour, path, used, value};

const HOUR_MS: u64 = 3_600_000;
/// One core for one hour, and the sixteenth on top.
const FULL: u64 = HOUR_MS + HOUR_MS / 16;
const ONE_CORE: Bound = Bound::new(1, 1);

fn over(site: SiteId, span: Span, counter: &'static str, claimed: u64, bound: u64) -> Refused {
    Refused::OverCapacity {
        site,
        span,
        counter,
        claimed: claimed.into(),
        bound: bound.into(),
    }
}

proptest! {
    #[test]
    fn a_refusal_leaves_no_trace(steps in any_steps(40), more in proptest::collection::vec((0..60u32, 0..5u64), 1..8)) {
        let mut writers = history(&steps);
        let writer = &mut writers[0];
        let rows: Vec<_> = more
            .into_iter()
            .map(|(window, user)| (hour(window), path(&format!("/new/{user}")), used(user * HOUR_MS)))
            .chain([(Span::Day(1), path("/p/u"), used(1_000 * 24 * HOUR_MS * 2)), (hour(30), path("/p/u"), used(1)),
                (hour(70), path("/z"), used(1))])
            .collect();
        let batch = writer.sign(rows);
        let (before, memory) = (value(&writer.own), writer.own.totals_by_path());
        let refused = writer.own.apply_batch(batch.clone(), AMPLE);
        prop_assert!(matches!(refused, Err(Refused::OverCapacity { .. })), "{:?}", refused);
        prop_assert_eq!(value(&writer.own), before);
        prop_assert_eq!(writer.own.totals_by_path(), memory);
        prop_assert!(matches!(writer.own.apply_batch(batch, Bound::new(u32::MAX, u32::MAX)), Ok(Applied::Fresh(_))));
    }
}

#[test]
fn the_bound_is_met_to_the_millisecond() {
    let writer = Writer::new(1, 1);
    let site = writer.stream.site;
    let rows = |ms| {
        vec![
            (hour(7), path("/a"), used(ms - 1)),
            (hour(7), path("/b"), used(1)),
        ]
    };
    let refused = empty().apply_batch(writer.sign(rows(FULL + 1)), ONE_CORE);
    assert_eq!(refused, Err(over(site, hour(7), "cpu_ms", FULL + 1, FULL)));
    assert!(matches!(
        empty().apply_batch(writer.sign(rows(FULL)), ONE_CORE),
        Ok(Applied::Fresh(_))
    ));
}

#[test]
fn lives_of_one_site_share_its_capacity() {
    let (mut first, mut second) = (Writer::new(1, 1), Writer::new(1, 2));
    let mut usage = empty();
    usage
        .apply_batch(first.count(0, &path("/a"), FULL - 5), ONE_CORE)
        .expect("fits");
    let refused = usage.apply_batch(second.count(0, &path("/b"), 6), ONE_CORE);
    assert_eq!(
        refused,
        Err(over(first.stream.site, hour(0), "cpu_ms", FULL + 1, FULL))
    );
    assert_eq!(usage.version_vector().dots.len(), 1);
    let mut other_site = Writer::new(2, 1);
    usage
        .apply_batch(other_site.count(0, &path("/b"), FULL), ONE_CORE)
        .expect("a site of its own");
}

#[test]
fn charge_without_cpu_time_is_bounded_too() {
    let writer = Writer::new(1, 1);
    let claim = Counters {
        charge: FULL + 1,
        ..Counters::default()
    };
    let batch = writer.sign(vec![(hour(0), path("/a"), claim)]);
    let refused = empty().apply_batch(batch.clone(), ONE_CORE);
    assert_eq!(
        refused,
        Err(over(writer.stream.site, hour(0), "charge", FULL + 1, FULL))
    );
    assert!(
        empty().apply_batch(batch, Bound::new(1, 2)).is_ok(),
        "where the VO's weights allow it"
    );
}

#[test]
fn a_day_cannot_be_claimed_once_in_hours_and_once_as_a_day() {
    let mut writer = Writer::new(1, 1);
    let mut usage = empty();
    let day: u64 = 24 * FULL;
    let hours = (0..24)
        .map(|window| (hour(window), path("/a"), used(FULL)))
        .collect();
    usage
        .apply_batch(writer.publish(hours), ONE_CORE)
        .expect("fits");
    let refused = usage.apply_batch(
        writer.sign(vec![(Span::Day(0), path("/b"), used(1))]),
        ONE_CORE,
    );
    assert_eq!(
        refused,
        Err(over(
            writer.stream.site,
            Span::Day(0),
            "cpu_ms",
            day + 1,
            day
        ))
    );
    let rows = writer.own.compact_days(writer.stream, 1);
    assert_eq!(rows[0].2.cpu_ms, day);
    usage
        .apply_batch(writer.publish(rows), ONE_CORE)
        .expect("moving the hours into the day claims nothing more");
}

#[test]
fn what_was_taken_before_a_capacity_shrank_is_let_be() {
    let mut writer = Writer::new(1, 1);
    let mut usage = empty();
    let first = writer.count(0, &path("/a"), 4 * FULL);
    usage.apply_batch(first, Bound::new(4, 4)).expect("fits");
    let mut one_more_job = used(4 * FULL);
    one_more_job.jobs += 1;
    let ended = writer.publish(vec![(hour(0), path("/a"), one_more_job)]);
    usage
        .apply_batch(ended, ONE_CORE)
        .expect("the claim does not grow");
    let next = writer.count(1, &path("/a"), FULL);
    usage
        .apply_batch(next, ONE_CORE)
        .expect("another hour fits");
    let more = writer.count(0, &path("/a"), 1);
    assert!(usage.apply_batch(more, ONE_CORE).is_err());
}
