//! The record log: what it holds, and what has become of records.
//!
//! Invariant: where no log is kept there is nothing. Deliberately not here: what was charged, which is
//! counted by the site.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::Sample;
use super::registry::{counter, gauge, signed};

pub(super) fn register(registry: &mut Registry, sample: &Sample) {
    let Some(log) = &sample.record_log else {
        return;
    };
    let help = "Jobs in the record log";
    gauge(registry, "record_log_rows", help, log.rows);
    let bytes: Gauge = Gauge::default();
    bytes.set(signed(log.bytes));
    let help = "Size of the record log, without what is free in its file";
    registry.register_with_unit("record_log", help, Unit::Bytes, bytes);
    let help = "Jobs that were new to the record log";
    counter(registry, "record_log_inserted", help, log.inserted);
    let help = "Jobs that the record log forgot, for their age or for want of room";
    counter(registry, "record_log_pruned", help, log.pruned);
    let help = "Records that could not be written to the record log";
    counter(registry, "record_log_refused", help, log.refused);
}

#[cfg(test)]
mod tests {
    use super::super::render;
    use super::*;
    use crate::record_log::LogStats;

    #[test]
    fn a_log_shows_what_it_holds_and_none_shows_nothing() {
        let mut sample = Sample::default();
        assert!(!render(&sample).expect("renders").contains("record_log"));
        sample.record_log = Some(LogStats {
            rows: 5,
            bytes: 4_096,
            inserted: 7,
            pruned: 2,
            refused: 1,
        });
        let text = render(&sample).expect("renders");
        for line in [
            "fairmesh_record_log_rows 5",
            "fairmesh_record_log_bytes 4096",
            "fairmesh_record_log_inserted_total 7",
            "fairmesh_record_log_pruned_total 2",
            "fairmesh_record_log_refused_total 1",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
