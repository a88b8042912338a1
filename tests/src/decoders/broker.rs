//! What a broker reads: usage SLAs, the queue's journal, how sites stand, and jobs that ask for a place.
//!
//! Invariant: what was read is used as well, and that must not panic either.

use fairmesh::control::answer::PlaceAsk;
use fairmesh::place::Grid;
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
        for path in sla.entries.keys() {
            sla.entitlement(path, total);
        }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Decoder, decode};
    use super::*;

    const SLA: &str = "[sla]\n\"/a\" = { cpu = \"10% / 30d, burst 40% / 1d\", disk = \"2TiB\", extensible = true }\n\
        \"/a/g\" = { cpu = \"25%+\", at_most = \"150cpus\" }\n\"/b\" = { cpu = \"5%-\" }\n";
    const JOURNAL: &str = r#"{"record":"added","key":"j","account":"/g","cpus":3,"wall_ms":60000}
{"record":"assigned","job":"j","attempt":1,"site":"s","at":7}
{"record":"started","job":"j","attempt":1}
{"record":"failed","job":"j","attempt":1,"at":9,"why":"no"}
{"record":"given-up","job":"j","why":"no"}
"#;
    const GRID: &str = r#"{"sites": [{"name": "s", "total": 100, "free": 40, "waiting": 0, "vos": {"v": {
        "epoch_used": 12.5, "epoch_share": 50, "burst_used": 10, "burst_limit": 50, "extensible": false}}}]}"#;
    const ASK: &str = r#"{"vo": "v", "cpus": 8, "wall_s": 60}"#;
    const SAMPLES: [(&str, Decoder, &str); 4] = [
        ("sla", sla, SLA),
        ("queue_journal", queue_journal, JOURNAL),
        ("place_grid", place_grid, GRID),
        ("place_ask", place_ask, ASK),
    ];

    #[test]
    fn what_is_well_formed_is_liked() {
        for (name, decoder, sample) in SAMPLES {
            assert!(decode(name, sample.as_bytes()), "{name}");
            assert!(decoder(sample.as_bytes()), "{name} is another one");
        }
    }

    proptest! {
        /// Bytes are replaced, cut out and doubled in what would be read.
        #[test]
        fn what_is_damaged_never_panics(
            places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..6),
        ) {
            for (_, decoder, sample) in SAMPLES {
                let mut bytes = sample.as_bytes().to_vec();
                for (at, byte, kind) in &places {
                    let at = at.index(bytes.len());
                    match kind {
                        0 => bytes[at] = *byte,
                        1 => bytes.insert(at, b'0' + byte % 10),
                        2 => bytes.truncate(at + 1),
                        _ => drop(bytes.remove(at)),
                    }
                    if bytes.is_empty() {
                        bytes.push(*byte);
                    }
                }
                decoder(&bytes);
            }
        }
    }
}
