//! What is too old to count costs no more work than what is not.

use fairmesh_model::window::DAY_MS;
use fairmesh_model::{JobKey, Origin};

use super::*;

const NOW: WallTime = WallTime(20_000 * DAY_MS + 7_200_001);

/// Days that the history reaches back.
const HISTORY: u64 = 90;

fn rules(horizon: WallTime) -> Rules {
    Rules {
        charging: ChargingRule::Weights {
            cpu: 333,
            gpu: 7_001,
            mem_gib: 77,
            max: false,
            energy_kwh: 0,
            spec_max: None,
        },
        discounts: Discounts::NONE,
        window: WindowLength::HOUR,
        mode: UsageMode::Active,
        whole_jobs: false,
        horizon,
        whole_days_before: 19_998,
        latest: NOW,
    }
}

fn ran(start: WallTime, end: WallTime) -> UsageRecord {
    UsageRecord {
        key: JobKey {
            cluster: "c".to_owned(),
            job: "1".to_owned(),
            instance: 1,
        },
        origin: Origin::default(),
        start,
        end,
        cores: 7,
        gpus: 1,
        mem_mib: 1_013,
        placement: fairmesh_model::Placement::default(),
        running: false,
    }
}

#[test]
fn a_job_of_ten_years_is_cut_into_no_more_pieces_than_the_history_has() {
    let horizon = WallTime((20_000 - HISTORY) * DAY_MS);
    let site = Charging::default();
    for days in [3_650, HISTORY + 1, HISTORY, 2, 0] {
        let record = ran(NOW.before(Millis(days * DAY_MS + 1_234_567)), NOW);
        let cut = pieces(record.start, record.end, &rules(horizon)).count();
        assert!(
            cut as u64 <= HISTORY + 2 * 24 + 2,
            "{days} days: {cut} pieces"
        );
        let charged = |horizon| {
            let charged = charge(&record, None, &rules(horizon), &site);
            charged.expect("a price").expect("it is new")
        };
        let (some, all) = (charged(horizon), charged(WallTime(0)));
        assert_eq!(some.mark, all.mark, "nothing of the charge is lost");
        let counts = |(span, _): &(Span, Counters)| span.end(WindowLength::HOUR) > horizon;
        let young: Vec<_> = all.parts.into_iter().filter(counts).collect();
        assert_eq!(some.parts, young);
        assert_eq!(some.late, record.start < horizon);
    }
    let over = ran(WallTime(DAY_MS), horizon);
    let charged = charge(&over, None, &rules(horizon), &site).expect("a price");
    let charged = charged.expect("it is new");
    assert!(charged.late && charged.parts.is_empty(), "{charged:?}");
}
