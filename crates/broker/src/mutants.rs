//! Faults that can be planted in this crate, and the test that finds each.
//!
//! Invariant: with the fault the test fails, which passes by itself beside this one; a test compares the table with the
//! hooks. Deliberately not here: faults of other crates, whose table is the simulator's.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fairmesh_model::mutant::plant;

use crate::{disk, engine, forward, queue, selector, sla, utility};

/// Its name as in its hook, what is wrong, and the test that finds it.
type Fault = (&'static str, &'static str, fn());

const TABLE: &[Fault] = &[
    (
        "LastCpuKept",
        "the last CPU of a burst limit is never given",
        engine::tests::readings_differ_as_the_paper_and_its_faults_make_them,
    ),
    (
        "OwnJobsUncounted",
        "what the VO itself holds is taken for free",
        engine::tests::readings_differ_as_the_paper_and_its_faults_make_them,
    ),
    (
        "OwnWaitingUncounted",
        "jobs of the VO that wait do not count against its limit",
        engine::tests::jobs_of_the_vo_that_wait_count_against_its_limit,
    ),
    (
        "EpochUnchecked",
        "the epoch's share does not bind",
        engine::tests::readings_differ_as_the_paper_and_its_faults_make_them,
    ),
    (
        "BurstUnchecked",
        "the burst limit does not bind",
        engine::tests::readings_differ_as_the_paper_and_its_faults_make_them,
    ),
    (
        "ExtendedInContention",
        "CPUs beyond the limits are given while others wait for them",
        engine::tests::who_waits_and_what_local_groups_hold_count,
    ),
    (
        "WaitingJumped",
        "jobs that wait for longer are passed",
        engine::tests::who_waits_and_what_local_groups_hold_count,
    ),
    (
        "GuaranteeIgnored",
        "jobs are started into guarantees that are waited for",
        engine::tests::nobody_is_started_into_a_guarantee_that_is_waited_for,
    ),
    (
        "AnyMachineFits",
        "a job goes where no machine has what it asks for",
        engine::tests::what_does_not_fit_and_what_is_silent_is_refused,
    ),
    (
        "SilentBelieved",
        "a view is believed whatever its age",
        engine::tests::what_does_not_fit_and_what_is_silent_is_refused,
    ),
    (
        "DiskUnchecked",
        "files that do not fit are let in",
        disk::tests::the_smaller_of_quota_and_share_bounds_what_is_staged_and_reserved,
    ),
    (
        "DiskUnreserved",
        "no disk is kept for jobs that were placed and have not ended",
        queue::tests::disk_is_kept_for_a_job_from_its_placement_to_its_end,
    ),
    (
        "BurstRoundedUp",
        "a part of a CPU counts as a whole one",
        sla::tests::a_standing_is_what_the_entry_says,
    ),
    (
        "OversubscribedWhole",
        "each of several consumers is entitled to what is promised to all of them",
        sla::tests::what_is_promised_twice_is_shared_out,
    ),
    (
        "WaitBeforeNow",
        "sites where the job would wait come first",
        selector::tests::sites_that_start_now_come_first_but_for_the_naive,
    ),
    (
        "RobinStays",
        "the robin does not go round",
        selector::tests::the_robin_goes_round_over_sites_that_come_and_go,
    ),
    (
        "RecentFirst",
        "the most recently used comes first, as GRUBER prints",
        selector::tests::the_least_recently_used_comes_first_and_the_never_used_before_it,
    ),
    (
        "OwnUncounted",
        "what was sent since the view was made is forgotten",
        selector::tests::the_least_used_is_used_with_what_was_sent_since_the_view,
    ),
    (
        "ObservantFloods",
        "the observant does not wait for a start",
        selector::tests::the_observant_sends_one_more_when_one_has_started,
    ),
    (
        "BestOptionUnseen",
        "the first option that is satisfied counts",
        utility::tests::more_is_worth_more,
    ),
    (
        "WeightIgnored",
        "all requirements weigh alike",
        utility::tests::weights_shrink_a_utility_unless_it_is_normalised,
    ),
    (
        "HopsUncounted",
        "a receiver does not count the hop",
        forward::tests::a_receiver_counts_the_hop_and_acknowledges_behind_what_it_keeps,
    ),
    (
        "AcknowledgedEarly",
        "a job is acknowledged before it is kept",
        forward::tests::a_job_ends_once_whatever_is_lost_doubled_and_killed,
    ),
    (
        "RepeatTaken",
        "a repeated message is taken for another job",
        forward::tests::a_job_ends_once_whatever_is_lost_doubled_and_killed,
    ),
    (
        "SentAndForgotten",
        "a job that is sent is not kept",
        forward::tests::a_job_ends_once_whatever_is_lost_doubled_and_killed,
    ),
    (
        "AnyAnswerCounts",
        "an answer counts whoever gives it",
        forward::tests::who_does_not_consent_is_asked_once_and_believed_once,
    ),
    (
        "SubmittedFirst",
        "a job is submitted before it is written where",
        queue::tests::a_kill_at_any_line_neither_loses_nor_doubles_a_job,
    ),
    (
        "AskSkipped",
        "after a start jobs are submitted without asking",
        queue::tests::a_kill_at_any_line_neither_loses_nor_doubles_a_job,
    ),
    (
        "LateIsGone",
        "a late job is sent elsewhere before it is surely nowhere",
        queue::tests::what_is_late_is_in_flight_until_it_is_surely_nowhere,
    ),
    (
        "GroupLimitUnchecked",
        "a group passes its limit",
        queue::tests::groups_take_turns_within_the_limits_of_every_level,
    ),
    (
        "VoLimitUnchecked",
        "the VO passes its limit",
        queue::tests::groups_take_turns_within_the_limits_of_every_level,
    ),
    (
        "SitePartUnchecked",
        "a group has more than its part of a site",
        queue::tests::a_group_has_its_part_of_each_site_where_use_is_proportional,
    ),
    (
        "FailedSiteAgain",
        "a site that has just failed a job is tried again for it",
        queue::tests::a_site_that_failed_a_job_is_not_tried_for_it_for_a_while,
    ),
    (
        "OnTheWayForgotten",
        "a job that travels is taken for one that the view has",
        queue::tests::what_was_on_its_way_when_a_view_was_made_is_counted,
    ),
    (
        "LiarBelieved",
        "a site is believed whatever this queue has there",
        queue::tests::a_site_that_jobs_contradict_gets_one_at_a_time,
    ),
    (
        "RetriedForEver",
        "a job that always fails is never given up",
        queue::tests::a_site_that_failed_a_job_is_not_tried_for_it_for_a_while,
    ),
];

#[test]
fn each_fault_is_found_by_its_test() {
    for (name, says, test) in TABLE {
        let planted = plant(name);
        let found = catch_unwind(AssertUnwindSafe(test)).is_err();
        drop(planted);
        assert!(found, "{name} is not found: {says}");
    }
}

#[test]
fn each_fault_has_a_row_and_each_row_a_hook() {
    let mut hooked = BTreeSet::new();
    hooks(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut hooked,
    );
    let told: BTreeSet<String> = TABLE.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(told.len(), TABLE.len(), "a name stands for one fault");
    assert_eq!(hooked, told);
}

/// Names of the hooks below a folder.
fn hooks(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("it is listed").path();
        if path.is_dir() {
            hooks(&path, names);
            continue;
        }
        let text = fs::read_to_string(&path).expect("it is text");
        let calls = ["mutant!(", "mutated!("]
            .into_iter()
            .flat_map(|call| text.split(call).skip(1));
        let name = |rest: &str| {
            let mut words = rest
                .trim_start()
                .split(|letter: char| !letter.is_alphanumeric());
            words
                .next()
                .filter(|name| name.starts_with(char::is_uppercase))
                .map(str::to_owned)
        };
        names.extend(calls.filter_map(name));
    }
}
