//! What a broker reads: usage SLAs, the queue's journal, how sites stand, and jobs that ask for a place.
//!
//! Invariant: what was read is used as well, and that must not panic either.

use fairmesh_api::{Grid, PlaceAsk};
use fairmesh_broker::queue::{Limits, Manager, Record};
use fairmesh_broker::{Engine, Request, Selector, Sla, judge};
use fairmesh_model::{Millis, WallTime};

/// A usage SLA. What was read is written, and read back as the same.
///
/// # Panics
/// If it is another one then.
pub(super) fn sla(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let Ok(sla) = Sla::parse(text, "fuzz.toml") else {
        return false;
    };
    let written = sla.to_toml();
    let read = Sla::parse(&written, "written.toml").expect("it can read what it writes");
    assert!(read == sla, "{written}");
    for total in [0, 600, u64::MAX] {
        sla.limits(total);
        sla.oversubscribed(total);
        sla.entitlements(total);
    }
    !sla.entries.is_empty()
}

/// A journal, one record a line, whatever it says of jobs and attempts.
pub(super) fn queue_journal(bytes: &[u8]) -> bool {
    let lines = bytes.split(|byte| *byte == b'\n');
    let records: Result<Vec<Record>, _> = lines
        .filter(|line| !line.is_empty())
        .map(serde_json::from_slice)
        .collect();
    let Ok(records) = records else { return false };
    let is_empty = records.is_empty();
    let (mut manager, _) = Manager::restore(Limits::default(), Selector::default(), records);
    manager.tick(WallTime(u64::MAX));
    manager.asks();
    !is_empty
}

/// How sites stand; each is judged by all readings.
pub(super) fn place_grid(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let Ok(grid) = Grid::parse(text, "fuzz.json") else {
        return false;
    };
    for site in &grid.sites {
        for engine in [Engine::Published, Engine::Prose, Engine::Sound] {
            for cpus in [0, 1, u64::MAX] {
                for vo in site.vos.keys() {
                    let request = Request::of_cpus(vo, cpus);
                    judge(engine, site, &request, Some(Millis(1)));
                }
            }
        }
    }
    !grid.sites.is_empty()
}

/// A job that asks a node for a place.
pub(super) fn place_ask(bytes: &[u8]) -> bool {
    serde_json::from_slice::<PlaceAsk>(bytes).is_ok_and(|ask| ask.cpus > 0)
}
