//! Small traces under two policies.
//!
//! Invariant: who is given more waits less. Deliberately not here: numbers of recorded traces.

use std::num::NonZeroUsize;

use fairmesh_cluster::Trace;

use super::*;

const TWO: NonZeroUsize = NonZeroUsize::new(2).expect("not zero");

const CAPACITY: Capacity = Capacity {
    utilisation_percent: 130,
};

/// Users 1 and 2 of group 7 submit an hour on four cores every ten minutes each.
fn trace() -> Trace {
    let mut text = "; UnixStartTime: 1000000000\n".to_owned();
    for number in 0..400 {
        let (at, user) = (number / 2 * 600, number % 2 + 1);
        text.push_str(&format!(
            "{number} {at} 0 3600 4 -1 -1 4 3600 -1 1 {user} 7 -1 -1 1 -1 -1\n"
        ));
    }
    Trace::read(text.as_bytes(), TWO).expect("a valid log")
}

fn compared(trace: &Trace, new: &str, knowledge: Knowledge) -> Comparison {
    fairmesh_model::signed::remember_verdicts();
    let old = equal_shares(trace);
    let new = read_policy(new, "new.toml").expect("a valid policy");
    let [before, after] =
        [&old, &new].map(|policy| replay(trace, policy, CAPACITY, knowledge, || {}));
    compare(trace, (&old, &before), (&new, &after))
}

#[test]
fn who_is_given_more_waits_less() {
    for knowledge in [Knowledge::Grid, Knowledge::AllKnowing] {
        assert_more_waits_less(knowledge);
    }
}

fn assert_more_waits_less(knowledge: Knowledge) {
    let trace = trace();
    let new = "[shares]\n\"/VO-7\" = 100\n\"/VO-7/U-1\" = 90\n\"/VO-7/U-2\" = 10\n";
    let comparison = compared(&trace, new, knowledge);
    assert_eq!((comparison.jobs, comparison.skipped), (400, 0));
    let [winner, loser] = &comparison.accounts[..] else {
        panic!("two accounts: {comparison:?}");
    };
    assert_eq!(winner.account, "/VO-7/U-1");
    assert_eq!(winner.target_percent, (Some(50.0), Some(90.0)));
    // All has run by the end of the second day: what is gained is to run on the first.
    assert!(winner.gained_by_day[0] > 100.0, "{winner:?}");
    assert!(loser.gained_by_day[0] < -100.0, "{loser:?}");
    assert_eq!(winner.most_on_day.0, 1);
    assert!(winner.wait_hours.1 < winner.wait_hours.0, "{winner:?}");
    assert!(loser.wait_hours.1 > loser.wait_hours.0, "{loser:?}");
    assert_eq!(winner.gained_by_day.len() as u64, comparison.days);
    figure(&comparison).to_svg().expect("it can be drawn");
}

#[test]
fn the_same_policy_changes_nothing() {
    let trace = trace();
    let same = "[shares]\n\"/VO-7\" = 100\n\"/VO-7/U-1\" = 50\n\"/VO-7/U-2\" = 50\n";
    let comparison = compared(&trace, same, Knowledge::Grid);
    for account in &comparison.accounts {
        assert_eq!(account.gained().abs(), 0.0, "{account:?}");
        assert_eq!(account.wait_hours.0, account.wait_hours.1);
    }
}

#[test]
fn mounts_are_entries_and_what_is_dropped_is_none() {
    let text = "[shares]\n\"/a\" = { share = 40, mount = \"a\", cap = 30 }\n\
        \"/b\" = { share = 60, mount = \"b\", drop = true }\n\"/c\" = 12.5\n";
    let policy = read_policy(text, "new.toml").expect("a valid policy");
    let targets: Vec<(String, f64)> = targets(&policy)
        .into_iter()
        .map(|(path, target)| (path.to_string(), target))
        .collect();
    assert_eq!(targets, [("/a".to_owned(), 0.3), ("/c".to_owned(), 0.7)]);
    let draft = format!("[policy]\nvo = \"x\"\n{text}");
    assert_eq!(read_policy(&draft, "draft.toml").expect("a draft"), policy);
    let error = read_policy("[shares]\n\"/a\" = -1\n", "new.toml").expect_err("below zero");
    assert!(error.to_string().starts_with("new.toml:2:"), "{error}");
}

/// Four VOs of six users each on three partitions, of all widths, over thirty hours: what waits at the
/// first midnight depends on the policy. Every tenth job never ran.
fn many_vos() -> Trace {
    let mut text = "; UnixStartTime: 1000000000\n".to_owned();
    for number in 0..1_200_u32 {
        let mixed = number.wrapping_mul(0x9e37_79b1) >> 8;
        let (vo, user, queue) = (mixed % 4, mixed / 4 % 6, mixed / 24 % 3);
        let (run, cores) = (mixed / 72 % 5_400 + 1, 1 << (mixed / 7 % 6));
        let run = if number % 10 == 0 { -1 } else { i64::from(run) };
        text.push_str(&format!(
            "{number} {} 0 {run} {cores} -1 -1 {cores} 5400 -1 1 {vo}{user} {vo} -1 1 {queue} -1 -1\n",
            number * 90
        ));
    }
    Trace::read(text.as_bytes(), TWO).expect("a valid log")
}

#[test]
fn a_log_of_many_vos_is_replayed_to_the_last_job() {
    let trace = many_vos();
    assert_eq!((trace.vos.len(), trace.jobs.len()), (4, 1_080));
    let comparison = compared(
        &trace,
        "[shares]\n\"/VO-3\" = 90\n\"/VO-1\" = 10\n",
        Knowledge::Grid,
    );
    assert_eq!(comparison.jobs + comparison.skipped, 1_080);
    assert!(
        comparison
            .accounts
            .iter()
            .any(|account| account.gained_by_day[0] != 0.0)
    );
}
