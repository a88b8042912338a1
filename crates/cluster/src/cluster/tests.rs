use fairmesh_model::AccountPath;
use proptest::prelude::*;

use super::*;

fn account(name: &str) -> AccountKey {
    AccountKey {
        vo: 0,
        path: AccountPath::parse(&format!("/{name}")).expect("valid"),
    }
}

fn job(id: u64, name: &str, cores: u32, seconds: u64) -> Job {
    let run = Millis::from_secs(seconds);
    Job {
        id: JobId(id),
        account: account(name),
        cores,
        run,
        requested: run,
    }
}

fn priorities(rows: &[(&str, u64)]) -> BTreeMap<AccountKey, u64> {
    rows.iter()
        .map(|(name, priority)| (account(name), *priority))
        .collect()
}

fn cluster(cores: u32, backfill: Backfill, jobs: &[Job]) -> Cluster {
    let mut cluster = Cluster::new(cores, backfill);
    for job in jobs {
        cluster.submit(job.clone()).expect("a good job");
    }
    cluster
}

fn ids(started: &[Started]) -> Vec<u64> {
    started.iter().map(|started| started.job.id.0).collect()
}

const T0: WallTime = WallTime::from_unix_secs(1_000_000);

#[test]
fn order_is_by_priority_and_then_by_submission() {
    let jobs = [
        job(1, "a", 1, 9),
        job(2, "b", 1, 9),
        job(3, "a", 1, 9),
        job(4, "c", 1, 9),
        job(5, "b", 1, 9),
    ];
    type Row = (&'static str, &'static [(&'static str, u64)], [u64; 5]);
    let rows: [Row; 4] = [
        ("no priorities", &[], [1, 2, 3, 4, 5]),
        ("all tie", &[("a", 7), ("b", 7), ("c", 7)], [1, 2, 3, 4, 5]),
        ("distinct", &[("a", 1), ("b", 3), ("c", 2)], [2, 5, 4, 1, 3]),
        ("one missing", &[("b", 1), ("c", 1)], [2, 4, 5, 1, 3]),
    ];
    for (name, weights, expected) in rows {
        let mut cluster = cluster(5, Backfill::Off, &jobs);
        assert_eq!(
            ids(&cluster.schedule(T0, &priorities(weights))),
            expected,
            "{name}"
        );
    }
}

#[test]
fn a_blocked_head_blocks_everybody_without_backfill() {
    let jobs = [job(1, "a", 3, 10), job(2, "b", 2, 10), job(3, "c", 1, 1)];
    let mut cluster = cluster(4, Backfill::Off, &jobs);
    assert_eq!(ids(&cluster.schedule(T0, &BTreeMap::new())), [1]);
    assert_eq!(cluster.next_event(), Some(T0.after(Millis::from_secs(10))));
    let later = T0.after(Millis::from_secs(10));
    assert!(
        cluster.schedule(later, &BTreeMap::new()).is_empty(),
        "cores are held until `finish`"
    );
    assert_eq!(cluster.finish(later).len(), 1);
    assert_eq!(ids(&cluster.schedule(later, &BTreeMap::new())), [2, 3]);
}

#[test]
fn easy_backfill_starts_what_does_not_delay_the_head() {
    // Four cores; job 1 holds three until second 10, job 2 wants two and is the blocked head.
    let head = [job(1, "a", 3, 10), job(2, "b", 2, 10)];
    let rows: [(&str, Job, bool); 4] = [
        ("short enough", job(3, "c", 1, 10), true),
        (
            "too long, but two cores are spare at second 10",
            job(3, "c", 1, 11),
            true,
        ),
        ("too wide for now", job(3, "c", 2, 1), false),
        (
            "behind the head, of the same account",
            job(3, "b", 1, 10),
            true,
        ),
    ];
    for (name, candidate, starts) in rows {
        let mut cluster = cluster(4, Backfill::Easy, &head);
        cluster.submit(candidate).expect("a good job");
        let started = ids(&cluster.schedule(T0, &BTreeMap::new()));
        assert_eq!(started.contains(&3), starts, "{name}");
    }
    // The head takes all cores at second 10, so nothing is spare for a longer job.
    let jobs = [
        job(1, "a", 3, 10),
        job(2, "b", 4, 10),
        job(3, "c", 1, 11),
        job(4, "d", 1, 10),
    ];
    let mut cluster = cluster(4, Backfill::Easy, &jobs);
    assert_eq!(ids(&cluster.schedule(T0, &BTreeMap::new())), [1, 4]);
}

#[test]
fn backfill_knows_requests_and_not_run_times() {
    let mut liar = job(1, "a", 3, 10);
    liar.requested = Millis::from_secs(5);
    let jobs = [liar, job(2, "b", 4, 10), job(3, "c", 1, 6)];
    let mut cluster = cluster(4, Backfill::Easy, &jobs);
    assert_eq!(
        ids(&cluster.schedule(T0, &BTreeMap::new())),
        [1],
        "the head is expected at 5"
    );
    let overdue = T0.after(Millis::from_secs(7));
    assert!(
        cluster.schedule(overdue, &BTreeMap::new()).is_empty(),
        "at any moment now"
    );
    assert_eq!(cluster.next_event(), Some(T0.after(Millis::from_secs(10))));
}

#[test]
fn bad_jobs_are_refused_and_change_nothing() {
    let mut cluster = cluster(4, Backfill::Off, &[job(1, "a", 4, 5)]);
    let refused = [
        (job(2, "a", 0, 5), SubmitError::NoCores(JobId(2))),
        (
            job(2, "a", 5, 5),
            SubmitError::TooWide {
                job: JobId(2),
                wanted: 5,
                cores: 4,
            },
        ),
        (job(1, "b", 1, 5), SubmitError::Repeated(JobId(1))),
    ];
    for (bad, error) in refused {
        assert_eq!(cluster.submit(bad), Err(error));
    }
    assert_eq!(
        (cluster.queued(), cluster.pending_accounts().count()),
        (1, 1)
    );
    cluster.schedule(T0, &BTreeMap::new());
    assert_eq!(
        cluster.submit(job(1, "b", 1, 5)),
        Err(SubmitError::Repeated(JobId(1)))
    );
    cluster.finish(T0.after(Millis::from_secs(5)));
    assert_eq!(
        cluster.submit(job(1, "b", 1, 5)),
        Ok(()),
        "a number is free again after the end"
    );
}

#[test]
fn a_job_of_no_length_starts_and_finishes_at_once() {
    let mut cluster = cluster(1, Backfill::Easy, &[job(1, "a", 1, 0), job(2, "a", 1, 0)]);
    for id in [1, 2] {
        assert_eq!(ids(&cluster.schedule(T0, &BTreeMap::new())), [id]);
        assert_eq!(cluster.next_event(), Some(T0));
        let finished = cluster.finish(T0);
        assert_eq!((finished.len(), finished[0].end), (1, T0));
    }
    assert_eq!(
        (cluster.queued(), cluster.cores_used(), cluster.next_event()),
        (0, 0, None)
    );
}

#[test]
fn a_pass_touches_heads_and_not_the_whole_queue() {
    let mut cluster = Cluster::new(100, Backfill::Easy);
    for id in 0..200_000 {
        cluster
            .submit(job(id, if id % 2 == 0 { "a" } else { "b" }, 1, 3_600))
            .expect("room");
    }
    // 2,000 passes over 200,000 jobs: with a walk through the queue this would take minutes.
    let mut now = T0;
    let mut started = 0;
    for _ in 0..2_000 {
        started += cluster.schedule(now, &priorities(&[("b", 1)])).len();
        now = cluster.next_event().expect("jobs run");
        cluster.finish(now);
    }
    assert_eq!(started, 200_000);
}

const BY_AGE: JobPriority = JobPriority {
    fairshare_weight: 1_000,
    age_weight: 100,
    age_max: Millis::from_secs(1_000),
};

fn aged(jobs: &[(u64, Job)]) -> Cluster {
    let mut cluster = Cluster::new(8, Backfill::Off);
    for (at, job) in jobs {
        let at = T0.after(Millis::from_secs(*at));
        cluster.submit_at(at, job.clone()).expect("a good job");
    }
    cluster
}

#[test]
fn age_tells_where_factors_are_near_and_not_where_they_are_far() {
    const FULL: u64 = 0xffff_ffff;
    // At second 1000 job 1 has aged fully and job 2 by half: 50 of 1,000 weights apart.
    let jobs = [(0, job(1, "a", 1, 9)), (500, job(2, "b", 1, 9))];
    let rows = [
        ("equal factors", FULL / 2, [1, 2]),
        (
            "a little more than age makes up for",
            FULL / 2 + FULL / 19,
            [2, 1],
        ),
        ("a little less", FULL / 2 + FULL / 21, [1, 2]),
        ("far apart", FULL, [2, 1]),
    ];
    for (name, factor, expected) in rows {
        let factors = priorities(&[("a", FULL / 2), ("b", factor)]);
        let now = T0.after(Millis::from_secs(1_000));
        let started = aged(&jobs).schedule_by(now, &factors, &BY_AGE);
        assert_eq!(ids(&started), expected, "{name}");
    }
}

#[test]
fn the_next_job_of_an_account_has_its_own_age() {
    // Job 1 is old and starts first; job 2 behind it is younger than the other account's job 3.
    let jobs = [
        (0, job(1, "a", 1, 9)),
        (400, job(3, "b", 1, 9)),
        (600, job(2, "a", 1, 9)),
    ];
    let now = T0.after(Millis::from_secs(700));
    let started = aged(&jobs).schedule_by(now, &BTreeMap::new(), &BY_AGE);
    assert_eq!(ids(&started), [1, 3, 2]);
    // Beyond the greatest age all are equal, and the order of submission decides.
    let much_later = T0.after(Millis::from_secs(5_000));
    let started = aged(&jobs).schedule_by(much_later, &BTreeMap::new(), &BY_AGE);
    assert_eq!(ids(&started), [1, 3, 2]);
}

/// Runs everything to the end; returns the finished jobs. Checks the cluster's books at each step.
fn drain(cluster: &mut Cluster, weights: &[u64]) -> Result<Vec<Finished>, TestCaseError> {
    let mut now = T0;
    let mut done = Vec::new();
    let mut turn = 0;
    loop {
        let priorities: BTreeMap<_, _> = cluster
            .pending_accounts()
            .zip(weights.iter().cycle().skip(turn))
            .map(|(account, weight)| (account.clone(), *weight))
            .collect();
        turn += 1;
        cluster.schedule(now, &priorities);
        let held: u32 = cluster.running().map(|started| started.job.cores).sum();
        prop_assert_eq!(held, cluster.cores_used());
        prop_assert!(held <= cluster.cores());
        prop_assert_eq!(cluster.pending().count(), cluster.queued());
        prop_assert_eq!(cluster.promised.len(), cluster.running.len());
        prop_assert_eq!(cluster.live.len(), cluster.running.len() + cluster.queued());
        let Some(next) = cluster.next_event() else {
            break;
        };
        now = next;
        done.extend(cluster.finish(now));
    }
    prop_assert_eq!(cluster.queued(), 0, "nothing runs, so nothing may wait");
    Ok(done)
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let job = (0_usize..4, 1_u32..=8, 0_u64..50, 0_u64..60);
    prop::collection::vec(job, 1..80).prop_map(|rows| {
        let numbered = rows.into_iter().zip(0..);
        let jobs = numbered.map(|((name, cores, run, requested), id)| Job {
            requested: Millis::from_secs(requested),
            ..job_of(id, name, cores, run)
        });
        jobs.collect()
    })
}

fn job_of(id: u64, name: usize, cores: u32, seconds: u64) -> Job {
    job(id, ["a", "b", "c", "d"][name], cores, seconds)
}

fn either_backfill() -> impl Strategy<Value = Backfill> {
    prop_oneof![Just(Backfill::Off), Just(Backfill::Easy)]
}

proptest! {
    #[test]
    fn every_job_runs_exactly_once_for_its_whole_time(
        jobs in jobs(), weights in prop::collection::vec(0_u64..3, 1..9), backfill in either_backfill(),
    ) {
        let mut cluster = cluster(8, backfill, &jobs);
        let mut done = drain(&mut cluster, &weights)?;
        let held = done.iter().map(|done| crate::job::core_ms(done.job.cores, done.end.since(done.start)));
        let asked = jobs.iter().map(Job::core_ms);
        prop_assert_eq!(held.sum::<fairmesh_model::CoreMillis>(), asked.sum());
        done.sort_by_key(|done| done.job.id);
        let ran: Vec<_> = done.into_iter().map(|done| done.job).collect();
        prop_assert_eq!(ran, jobs);
    }

    #[test]
    fn without_a_weight_for_age_nothing_changes(
        jobs in jobs(), weights in prop::collection::vec(0_u64..3, 4..5), weight in 1_u32..9,
        backfill in either_backfill(),
    ) {
        let weigh = JobPriority { fairshare_weight: weight, age_weight: 0, ..BY_AGE };
        let factors: BTreeMap<_, _> = ["a", "b", "c", "d"].map(account).into_iter().zip(weights).collect();
        let mut plain = cluster(8, backfill, &jobs);
        let mut weighed = Cluster::new(8, backfill);
        for (job, at) in jobs.iter().zip(0..) {
            weighed.submit_at(T0.before(Millis(at)), job.clone()).expect("a good job");
        }
        let mut now = T0;
        loop {
            let expected = plain.schedule(now, &factors);
            prop_assert_eq!(weighed.schedule_by(now, &factors, &weigh), expected);
            let Some(next) = plain.next_event() else { break };
            now = next;
            prop_assert_eq!(weighed.finish(now), plain.finish(now));
        }
    }

    #[test]
    fn jobs_of_one_account_start_in_order_without_backfill(
        jobs in jobs(), weights in prop::collection::vec(0_u64..3, 1..9),
    ) {
        let mut done = drain(&mut cluster(8, Backfill::Off, &jobs), &weights)?;
        done.sort_by_key(|done| (done.job.account.clone(), done.job.id));
        for pair in done.windows(2).filter(|pair| pair[0].job.account == pair[1].job.account) {
            prop_assert!(pair[0].start <= pair[1].start);
        }
    }

    #[test]
    fn backfill_never_delays_the_first_blocked_job(mut jobs in jobs()) {
        for job in &mut jobs {
            job.requested = job.run;
        }
        let mut plain = cluster(8, Backfill::Off, &jobs);
        plain.schedule(T0, &BTreeMap::new());
        let Some(head) = plain.pending().map(|job| job.id).min() else { return Ok(()) };
        let start_of_head = |done: &[Finished]| done.iter().find(|done| done.job.id == head).map(|done| done.start);
        let plain = drain(&mut plain, &[0])?;
        let easy = drain(&mut cluster(8, Backfill::Easy, &jobs), &[0])?;
        prop_assert_eq!(start_of_head(&easy), start_of_head(&plain));
    }
}
