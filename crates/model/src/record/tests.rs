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
    let changed = fitting("a\tb\u{200b}".to_owned());
    assert_eq!(changed, "a\u{fffd}09b\u{fffd}e2\u{fffd}80\u{fffd}8b");
    for long in ["é".repeat(300), "\n".repeat(512), "a".repeat(513)] {
        let fit = fitting(long.clone());
        assert!(is_fitting(&fit) && fit.contains('\u{fffd}'), "{fit}");
        assert!(fit.len() > NAME_BYTES_MAX - 8, "{long:?}");
        assert_eq!(fitting(fit.clone()), fit);
    }
}

#[test]
fn two_names_stay_two_whatever_cannot_be_shown_of_them() {
    assert_eq!(fitting(text(b"j\xfcrg")), "j\u{fffd}fcrg");
    let names: [&[u8]; 10] = [
        "j\u{f7fc}rg".as_bytes(),
        b"j\xfcrg",
        b"j\xe4rg",
        "j\u{fffd}rg".as_bytes(),
        "jürg".as_bytes(),
        b"j\xc3rg",
        b"jrg\n",
        b"jrg\r",
        "jrg\u{200b}".as_bytes(),
        "jrg\u{200c}".as_bytes(),
    ];
    let long = |last: &str| "a".repeat(600) + last;
    let fit = names.map(|name| fitting(text(name)));
    let mut all: std::collections::BTreeSet<String> = fit.into_iter().collect();
    all.extend([fitting(long("b")), fitting(long("c"))]);
    assert_eq!(all.len(), names.len() + 2);
    assert_eq!(element("/DC=org/CN=ann"), "|DC=org|CN=ann");
    for word in ["a/b", "a|b", "a|/|b", "7c"] {
        assert_eq!(word_of(&element(word)), word);
    }
}
