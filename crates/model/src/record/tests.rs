//! What a report may say of several nodes.

use super::*;

fn record() -> UsageRecord {
    let chunk = |nodes, cores, machine: Option<&str>| Chunk {
        nodes,
        cores,
        mem_mib: 10,
        machine: machine.map(str::to_owned),
        ..Chunk::default()
    };
    UsageRecord {
        key: JobKey {
            cluster: "c".to_owned(),
            job: "1".to_owned(),
            instance: 0,
        },
        origin: Origin {
            user: Some("ann".to_owned()),
            ..Origin::default()
        },
        start: WallTime(0),
        end: WallTime(1),
        cores: 79,
        gpus: 0,
        mem_mib: 20,
        placement: Placement {
            nodes: 16,
            properties: vec!["ib".to_owned()],
            chunks: vec![chunk(1, 64, Some("fat1")), chunk(15, 15, None)],
            ..Placement::default()
        },
        running: false,
    }
}

#[test]
fn chunks_add_up_to_the_job_or_are_refused() {
    assert_eq!(record().validate(), Ok(()));
    type Change = fn(&mut UsageRecord);
    let rows: [(Change, &str); 9] = [
        (|of| of.cores = 80, "cores"),
        (|of| of.gpus = 1, "GPUs"),
        (|of| of.mem_mib = 19, "MiB of memory"),
        (|of| of.placement.disk_mib = 1, "MiB of disk"),
        (|of| of.placement.nodes = 0, "nodes"),
        (|of| of.placement.chunks[0].nodes = 0, "nodes"),
        (
            |of| of.placement.chunks = vec![Chunk::default(); CHUNKS_MAX + 1],
            "256 chunks",
        ),
        (
            |of| of.placement.properties = vec![String::new(); PROPERTIES_MAX + 1],
            "64 properties",
        ),
        (
            |of| of.placement.chunks[1].machine = Some(String::new()),
            "the machine is empty",
        ),
    ];
    for (change, words) in rows {
        let mut changed = record();
        change(&mut changed);
        let error = changed.validate().expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_name_that_had_to_be_changed_fits_and_is_nobody_elses() {
    for name in ["ann", "DOM\\ann", "Ångström", &"é".repeat(256)] {
        assert_eq!(fitting(name.to_owned()), name, "it fits");
    }
    assert_eq!(fitting("a\tb\u{200b}".to_owned()), "a\u{fffd}b\u{fffd}");
    for (long, kept) in [
        ("é".repeat(300), 254),
        ("\n".repeat(512), 169),
        ("a".repeat(513), 509),
    ] {
        let fit = fitting(long.clone());
        assert!(is_fitting(&fit) && fit.ends_with('\u{fffd}'), "{fit}");
        assert_eq!(fit.chars().count(), kept + 1, "{long:?}");
        assert_eq!(fitting(fit.clone()), fit);
    }
}
