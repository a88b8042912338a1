use proptest::prelude::*;

use super::*;

/// job, submit, wait, run, processors, user, group, partition.
type Row = [i64; 8];

fn line([job, submit, wait, run, procs, user, group, partition]: &Row) -> String {
    format!(
        "{job} {submit} {wait} {run} {procs} -1 -1 -1 -1 -1 1 {user} {group} -1 -1 {partition} -1 -1\n"
    )
}

fn trace(header: &str, rows: &[Row], nodes: usize) -> Trace {
    let text: String = std::iter::once(header.to_owned())
        .chain(rows.iter().map(line))
        .collect();
    let nodes = NonZeroUsize::new(nodes).expect("a node");
    Trace::read(text.as_bytes(), nodes).expect("a good log")
}

fn key(vo: usize, path: &str) -> AccountKey {
    AccountKey {
        vo,
        path: AccountPath::parse(path).expect("valid"),
    }
}

const ROWS: [Row; 6] = [
    [1, 10, 5, 100, 1, 7, 2, 30],
    [2, 5, -1, 100, 4, 7, 1, 10],
    [3, 20, 0, 0, 1, 8, 2, 20],
    [4, 20, 0, -1, 1, 8, 2, 20],
    [5, 20, 0, 50, -1, 8, 2, 20],
    [6, 30, 0, 200, 1, -1, -1, 20],
];

#[test]
fn records_become_jobs_in_order_of_submission() {
    let trace = trace(
        "; UnixStartTime: 1000\n; Partition: 10 ten.example\n",
        &ROWS,
        2,
    );
    assert_eq!(
        trace.jobs.iter().map(|job| job.job).collect::<Vec<_>>(),
        [2, 1, 3, 6]
    );
    assert_eq!(trace.vos, ["VO-unknown", "VO-1", "VO-2"]);
    let skipped = BTreeMap::from([(SkipReason::NoRunTime, 1), (SkipReason::NoProcessors, 1)]);
    assert_eq!(trace.skipped, skipped);
    let job = &trace.jobs[1];
    assert_eq!((job.vo, job.account.as_str(), job.site), (2, "/U-7", 2));
    assert_eq!(job.submit, WallTime::from_unix_secs(1_010));
    assert_eq!(job.start, WallTime::from_unix_secs(1_015));
    assert_eq!(job.end, WallTime::from_unix_secs(1_115));
    assert_eq!(job.to_job().requested, Millis::from_secs(100));
}

#[test]
fn usage_is_summed_by_vo_and_user() {
    let usage = trace("", &ROWS, 2).usage();
    let expected = [
        (key(0, "/U-unknown"), CoreMillis(200_000)),
        (key(1, "/U-7"), CoreMillis(400_000)),
        (key(2, "/U-7"), CoreMillis(100_000)),
        (key(2, "/U-8"), CoreMillis(0)),
    ];
    assert_eq!(usage, BTreeMap::from(expected));
}

#[test]
fn sites_are_dealt_in_turn_heaviest_first() {
    // Loads: partition 10 has 400, 20 has 200, 30 has 100 core-seconds.
    let rows = [
        (1, [0, 0, 0]),
        (2, [0, 1, 0]),
        (3, [0, 1, 2]),
        (9, [0, 1, 2]),
    ];
    for (nodes, expected) in rows {
        let trace = trace("; Partition: 10 ten.example\n", &ROWS, nodes);
        assert_eq!(
            trace.sites.iter().map(|site| site.node).collect::<Vec<_>>(),
            expected
        );
        let names: Vec<_> = trace.sites.iter().map(|site| site.name.as_str()).collect();
        assert_eq!(names, ["ten.example", "partition-20", "partition-30"]);
        assert!(
            trace
                .jobs
                .iter()
                .all(|job| job.node == trace.sites[job.site].node)
        );
        assert_eq!(trace.peak_cores().len(), nodes);
    }
}

#[test]
fn a_log_without_groups_and_partitions_is_one_vo_on_one_site() {
    let rows = [
        [1, 0, 0, 10, 2, 1, -1, -1],
        [2, 5, 0, 10, 3, 1, -1, -1],
        [3, 10, 0, 5, 1, 1, -1, -1],
    ];
    let trace = trace("", &rows, 2);
    assert_eq!(trace.vos, ["all"]);
    assert_eq!(trace.sites.len(), 1);
    assert_eq!(
        (trace.sites[0].name.as_str(), trace.sites[0].node),
        ("all", 0)
    );
    assert_eq!(
        trace.peak_cores(),
        [5, 0],
        "the third job starts when the first one ends"
    );
}

#[test]
fn an_empty_log_is_an_empty_trace_and_a_bad_line_refuses_the_log() {
    let empty = trace("; Note: nothing\n", &[], 3);
    assert!(empty.jobs.is_empty() && empty.sites.is_empty() && empty.vos.is_empty());
    assert_eq!(empty.peak_cores(), [0, 0, 0]);
    let refused = Trace::read(&b"1 2 three\n"[..], NonZeroUsize::MIN).expect_err("three columns");
    assert!(refused.to_string().starts_with("line 1: "), "{refused}");
}

#[test]
fn absurd_numbers_saturate_instead_of_panicking() {
    let trace = trace(
        "; UnixStartTime: 18446744073709551615\n",
        &[[1, i64::MAX, i64::MAX, i64::MAX, 9, 1, 1, 1]],
        1,
    );
    assert_eq!(
        trace.total(),
        CoreMillis(0),
        "start and end saturate to one moment"
    );
    assert!(trace.skipped.is_empty());
    let wide = self::trace("", &[[1, 0, 0, 1, 1 << 32, 1, 1, 1]], 1);
    assert_eq!(
        wide.skipped,
        BTreeMap::from([(SkipReason::TooManyProcessors, 1)])
    );
}

#[test]
fn a_trace_is_submitted_anew_without_what_is_too_wide() {
    let trace = trace("; UnixStartTime: 1000\n", &ROWS, 2);
    // Partitions 10 and 30 are on node 0, 20 is on node 1; the job of partition 10 wants four cores.
    let arrivals = trace.arrivals(&[3, 1]);
    let left_out = BTreeMap::from([(SkipReason::WiderThanNode, 1)]);
    assert_eq!(arrivals.skipped(), &left_out);
    let arrivals: Vec<_> = arrivals.collect();
    let seen: Vec<_> = arrivals
        .iter()
        .map(|it| (it.at, it.site, it.leaf, it.job.id.0))
        .collect();
    let at = |seconds: u64| WallTime::from_unix_secs(1_000 + seconds);
    assert_eq!(
        seen,
        [(at(10), 0, 2, 0), (at(20), 1, 3, 1), (at(30), 1, 0, 2)]
    );
    let accounts: Vec<_> = trace.accounts().into_iter().collect();
    for arrival in &arrivals {
        assert_eq!(accounts[arrival.leaf], arrival.job.account);
    }
    assert_eq!(
        trace.arrivals(&[4]).count(),
        2,
        "a node without cores runs nothing"
    );
    assert!(trace.arrivals(&[4, 1]).skipped().is_empty());
}

#[test]
fn a_slice_is_what_was_submitted_in_its_time() {
    let trace = trace("", &ROWS, 2);
    let at = WallTime::from_unix_secs;
    let slice = trace.slice(at(10), at(30));
    let jobs: Vec<_> = slice.jobs.iter().map(|job| job.job).collect();
    assert_eq!(jobs, [1, 3]);
    assert_eq!(slice.total(), CoreMillis(100_000));
    let loads: Vec<_> = slice.sites.iter().map(|site| site.load).collect();
    assert_eq!(loads, [CoreMillis(0), CoreMillis(0), CoreMillis(100_000)]);
    assert_eq!((&slice.vos, slice.nodes), (&trace.vos, trace.nodes));
    let whole = trace.slice(at(0), at(31));
    assert_eq!((&whole.jobs, &whole.sites), (&trace.jobs, &trace.sites));
    assert!(trace.slice(at(30), at(30)).jobs.is_empty());
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let row = (
        0..50_i64,
        -1..9_i64,
        -1..90_i64,
        -1..9_i64,
        -1..4_i64,
        -1..3_i64,
        -1..5_i64,
    );
    let row = row.prop_map(|(submit, wait, run, procs, user, group, partition)| {
        [0, submit, wait, run, procs, user, group, partition]
    });
    prop::collection::vec(row, 0..60).prop_map(|mut rows| {
        for (row, job) in rows.iter_mut().zip(1..) {
            row[0] = job;
        }
        rows
    })
}

proptest! {
    #[test]
    fn no_core_second_is_lost_or_invented(rows in rows(), nodes in 1_usize..4) {
        let trace = trace("", &rows, nodes);
        let counted = rows.iter().filter(|row| row[3] >= 0 && row[4] > 0);
        let core_s: i64 = counted.map(|row| row[3] * row[4]).sum();
        let total = CoreMillis(u64::try_from(core_s).expect("positive") * 1_000);
        prop_assert_eq!(trace.total(), total);
        prop_assert_eq!(trace.usage().into_values().sum::<CoreMillis>(), total);
        prop_assert_eq!(trace.sites.iter().map(|site| site.load).sum::<CoreMillis>(), total);
        let records = trace.jobs.len() as u64 + trace.skipped.values().sum::<u64>();
        prop_assert_eq!(records, rows.len() as u64);
        let anew = trace.arrivals(&vec![4; nodes]);
        let left_out: u64 = anew.skipped().values().sum();
        let submitted: Vec<_> = anew.collect();
        prop_assert_eq!(submitted.len() as u64 + left_out, trace.jobs.len() as u64);
        prop_assert!(submitted.is_sorted_by_key(|arrival| arrival.at));
    }

    #[test]
    fn the_order_of_lines_changes_nothing_but_ties(rows in rows(), nodes in 1_usize..4) {
        let forward = trace("", &rows, nodes);
        let reversed: Vec<_> = rows.iter().rev().copied().collect();
        let backward = trace("", &reversed, nodes);
        prop_assert_eq!(&forward.sites, &backward.sites);
        prop_assert_eq!(&forward.vos, &backward.vos);
        prop_assert_eq!(forward.usage(), backward.usage());
        prop_assert_eq!(forward.peak_cores(), backward.peak_cores());
    }
}
