//! The oracle on rows that were worked out by hand.

use fairmesh_model::{Counters, JobKey, Origin, Placement, Span, WallTime, Window, WindowLength};

use super::answers::Row;
use super::*;
use crate::vo::{START, Vo, VoSpec, path, site_id};

const HOUR_MS: u64 = 3_600_000;

fn vo() -> VoId {
    VoId::from_bytes([1; 32])
}

fn terms(account: &str, cores: u64) -> Rc<Terms> {
    let record = record(cores, (0, 0), false);
    let cost = cost::Cost::of(
        &record,
        (
            &fairmesh_model::ChargingRule::CpuTime,
            &fairmesh_model::Discounts::NONE,
        ),
        &fairmesh_model::PriceList::default(),
        |machine| machine,
    );
    Rc::new(Terms {
        account: (Some(vo()), path(account)),
        cost: cost.expect("CPU time needs no machines"),
        window: WindowLength::HOUR,
        counts_running: true,
    })
}

/// A job that ran between two moments after the start.
fn record(cores: u64, (start, end): (u64, u64), running: bool) -> UsageRecord {
    UsageRecord {
        key: JobKey {
            cluster: "c".to_owned(),
            job: "1".to_owned(),
            instance: 0,
        },
        origin: Origin::default(),
        start: WallTime(START.0 + start),
        end: WallTime(START.0 + end),
        cores: u32::try_from(cores).expect("few"),
        gpus: 0,
        mem_mib: 0,
        placement: Placement::default(),
        running,
    }
}

#[test]
fn a_job_counts_once_however_often_it_is_told_of() {
    let mut oracle = Oracle::new(1);
    let terms = terms("/ann", 2);
    for (end, running) in [
        (5, true),
        (9, true),
        (9, true),
        (7, true),
        (9, false),
        (9, false),
    ] {
        let record = record(2, (0, end), running);
        oracle.offered(0, &record, &terms, false);
        oracle.acknowledged(0, &record);
    }
    let unanswered = UsageRecord {
        key: JobKey {
            job: "2".to_owned(),
            ..record(2, (0, 0), false).key
        },
        ..record(2, (0, 4), false)
    };
    oracle.offered(0, &unanswered, &terms, false);
    assert_eq!(oracle.bounds(vo())[&path("/ann")], (18, 26));
    let jobs = |cells: Option<&Cells>| {
        let cells = cells.expect("cells")[&path("/ann")].values();
        cells.map(|counters| counters.jobs).sum::<u64>()
    };
    assert_eq!(jobs(oracle.certain_cells(0, Some(vo()))), 1);
    assert_eq!(jobs(oracle.most_cells(0, Some(vo()))), 2);
}

#[test]
fn a_job_is_cut_where_windows_end() {
    let mut oracle = Oracle::new(1);
    // Simulated time begins twenty minutes after an hour.
    let record = record(3, (0, HOUR_MS), false);
    oracle.offered(0, &record, &terms("/ann", 3), false);
    oracle.acknowledged(0, &record);
    let cells = &oracle.certain_cells(0, Some(vo())).expect("cells")[&path("/ann")];
    let first = u32::try_from(START.0 / HOUR_MS).expect("an hour");
    let into = START.0 % HOUR_MS;
    assert_eq!(cells[&first].charge, 3 * (HOUR_MS - into));
    assert_eq!(cells.get(&(first + 1)).map_or(0, |of| of.charge), 3 * into);
}

#[test]
fn what_may_have_been_taken_by_other_rules_lies_between_both() {
    let mut oracle = Oracle::new(1);
    let record = record(2, (0, 100), false);
    oracle.offered(0, &record, &terms("/ann", 2), false);
    oracle.offered(0, &record, &terms("/bob", 2), false);
    oracle.acknowledged(0, &record);
    let bounds = oracle.bounds(vo());
    assert_eq!(bounds[&path("/ann")].0, 0);
    assert!(bounds[&path("/ann")].1 >= 200 && bounds[&path("/bob")].1 >= 200);
}

#[test]
fn a_lost_store_leaves_what_others_hold() {
    let mut oracle = Oracle::new(1);
    let ann = path("/ann");
    let told = |oracle: &mut Oracle, job: &str, ms| {
        let mut record = record(1, (0, ms), false);
        job.clone_into(&mut record.key.job);
        oracle.offered(0, &record, &terms("/ann", 1), false);
        oracle.acknowledged(0, &record);
    };
    told(&mut oracle, "old", 9);
    let survived = BTreeMap::from([(vo(), Amounts::from([(ann.clone(), 6)]))]);
    oracle.lost(0, &survived, &Amounts::new());
    told(&mut oracle, "new", 2);
    assert_eq!(oracle.bounds(vo())[&ann], (8, 11));
    oracle.lost_elsewhere(0, &BTreeMap::new());
    assert_eq!(oracle.bounds(vo())[&ann], (2, 11));
}

#[test]
fn what_is_taken_back_is_what_was_charged_once_and_in_the_same_windows() {
    let mut oracle = Oracle::new(1);
    let of = |cores| terms("/ann", cores);
    let (terms, dearer) = (of(2), of(6));
    let job = record(2, (HOUR_MS / 2, 2 * HOUR_MS), false);
    oracle.offered(0, &job, &terms, false);
    oracle.acknowledged(0, &job);
    let in_windows = |oracle: &Oracle, most: bool, of: fn(&Counters) -> u64| -> Vec<u64> {
        let cells = match most {
            true => oracle.most_cells(0, Some(vo())),
            false => oracle.certain_cells(0, Some(vo())),
        };
        let of_ann = cells.and_then(|cells| cells.get(&path("/ann")));
        let windows = of_ann.into_iter().flat_map(BTreeMap::values);
        windows.map(of).collect()
    };
    let refunds = |oracle: &Oracle, most| in_windows(oracle, most, |counters| counters.refunds);
    let all = in_windows(&oracle, true, |counters| counters.charge);
    assert_eq!(all.iter().sum::<u64>(), 3 * HOUR_MS);
    let nothing = vec![0; all.len()];
    // Asked for and not answered: it may have been taken back, and need not.
    oracle.correcting(0, &job.key, Some(&terms));
    let bounds = [false, true].map(|most| refunds(&oracle, most));
    assert_eq!(bounds, [nothing, all.clone()]);
    for _ in 0..2 {
        oracle.correcting(0, &job.key, Some(&terms));
        oracle.corrected(0, &job.key, Some(&terms));
        let bounds = [false, true].map(|most| refunds(&oracle, most));
        assert_eq!(bounds, [all.clone(), all.clone()]);
    }
    // Another price now: how it is spread is not known to the unit, and how much in all is.
    let mut other = record(2, (HOUR_MS / 2, 2 * HOUR_MS), false);
    other.key.job = "2".to_owned();
    oracle.offered(0, &other, &terms, false);
    oracle.acknowledged(0, &other);
    oracle.correcting(0, &other.key, Some(&dearer));
    oracle.corrected(0, &other.key, Some(&dearer));
    assert_eq!(refunds(&oracle, false), all);
    assert!(refunds(&oracle, true)[0] > all[0]);
    assert_eq!(
        oracle.certain(0, Some(vo()))[&path("/ann")],
        6 * HOUR_MS,
        "what was charged stays"
    );
}

#[test]
fn a_final_record_alone_decides_what_its_job_costs() {
    let net_of = |(cores, end): (u64, u64), is_answered: bool| {
        let mut oracle = Oracle::new(1);
        let instalment = record(2, (0, 8), true);
        oracle.offered(0, &instalment, &terms("/ann", 2), false);
        if is_answered {
            oracle.acknowledged(0, &instalment);
        }
        let last = record(cores, (0, end), false);
        for _ in 0..2 {
            oracle.offered(0, &last, &terms("/ann", cores), false);
            oracle.acknowledged(0, &last);
        }
        oracle.net(0)[&(Some(vo()), path("/ann"))]
    };
    for (last, charge) in [
        ((2, 9), 18),
        ((2, 0), 0),
        ((2, 5), 10),
        ((1, 8), 8),
        ((3, 9), 27),
    ] {
        assert_eq!(net_of(last, true), (charge, charge), "{last:?}");
        assert_eq!(
            net_of(last, false),
            (charge, charge),
            "{last:?}, after no answer"
        );
    }
}

#[test]
fn each_column_is_cut_to_its_own_limit() {
    let spec = VoSpec {
        members: vec![(0, 2)],
        gpus: Some(1),
        ..VoSpec::small("grid", 0)
    };
    let founded = Vo::found(0, spec).expect("a valid VO");
    let row = |account: &str, counters: Counters| Row {
        site: site_id(0),
        account: (Some(founded.id), path(account)),
        span: Span::Window(Window(7)),
        counters,
    };
    let all = |amount: u64| Counters {
        charge: amount,
        cpu_ms: amount,
        ..Counters::default()
    };
    // Half of what Ann used was taken back.
    let ann = Counters {
        refunds: 4_500_000,
        gpu_ms: 3_825_000,
        ..all(9_000_000)
    };
    let bob = Counters {
        gpu_ms: 3_825_000,
        mem_mib_s: 1 << 40,
        ..all(4_500_000)
    };
    let rows = [row("/ann", ann), row("/bob", bob)];
    let charter = founded.charter.claimed();
    let counted = clamp::clamped(&rows, site_id(0), |_| Some(charter));
    let columns = counted.iter().map(|row| row.counters);
    let columns: Vec<_> = columns
        .map(|of| (of.charge, of.cpu_ms, of.gpu_ms, of.mem_mib_s))
        .collect();
    // Two cores and a GPU, for an hour and a sixteenth; nothing is declared of memory.
    let right = [
        (3_825_000, 3_825_000, 1_275_000, 0),
        (3_825_000, 3_825_000, 2_550_000, 1 << 40),
    ];
    assert_eq!(columns, right);
}

#[test]
fn of_a_history_that_ends_only_the_last_windows_are_certain() {
    let mut oracle = Oracle::new(1);
    let terms = terms("/ann", 1);
    let record = record(1, (0, 3 * HOUR_MS), false);
    oracle.offered(0, &record, &terms, false);
    oracle.acknowledged(0, &record);
    assert_eq!(oracle.certain_total(0, Some(vo())), 3 * HOUR_MS);
    let reach = Reach {
        history: Millis(2 * HOUR_MS),
        window: Millis(HOUR_MS),
    };
    oracle.short.insert(Some(vo()), reach);
    oracle.now = record.end;
    // Windows begin at whole hours, and the job 20 minutes later.
    let in_windows = START.0 % HOUR_MS + HOUR_MS;
    assert_eq!(oracle.certain_total(0, Some(vo())), in_windows);
}
