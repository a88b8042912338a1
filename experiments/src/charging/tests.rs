//! A small log by hand; the recorded one, where it is.

use std::io::BufReader;

use flate2::read::GzDecoder;

use super::*;

/// Two machines of 80 cores and 504 GiB, four of 12 cores and 90 GiB.
const MACHINES: &str = "0 zewura 2 80 1 529426432\n1 zegox 4 12 1 94035968\n";

fn line(run: i64, cores: i64, gib_per_node: u64, user: u64, nodes: &str) -> String {
    let bytes = gib_per_node << 30;
    format!(
        "7 1356996147 0 {run} {cores} 1 1024 {cores} 86400 {bytes} 1 {user} 1 1 -1 1 1 1 {{{nodes}}} q 1:ppn=1"
    )
}

#[test]
fn a_small_log_adds_up() {
    let prices = machines(MACHINES).expect("valid");
    let log = [
        // Few GiB a core: cores count.
        line(1_000, 4, 4, 1, "5,5,5,5"),
        // 89 GiB of zegox is nearly all of it: nearly 12 cores.
        line(1_000, 1, 89, 2, "6"),
        // The same on each of two nodes.
        line(1_000, 2, 89, 2, "6,7"),
        line(1_000, 1, 600, 3, "1"),
        line(0, 1, 1, 3, "1"),
        line(-1, 1, 1, 3, "1"),
        "; a comment".to_owned(),
        "no job".to_owned(),
    ]
    .join("\n");
    let comparison = Comparison::read(log.as_bytes(), &prices).expect("readable");
    assert_eq!(comparison.users[&1].cpu_time, 4_000_000);
    assert_eq!(comparison.users[&1].penalty, 4_000_000);
    let heavy = comparison.users[&2];
    assert_eq!((heavy.jobs, heavy.cpu_time), (2, 3_000_000));
    let nodes = |nodes: u128| nodes * 1_000_000 * 12 * (89 << 10) / (94_035_968_u128 >> 10);
    assert_eq!(heavy.penalty, nodes(1) + nodes(2));
    assert_eq!(comparison.memory[0].jobs, 1);
    assert_eq!(comparison.memory[6].jobs, 2);
    assert_eq!(comparison.misfits, (1, 1_000_000));
    assert_eq!((comparison.not_run, comparison.unreadable), (2, 1));
    // Two nodes of 12 cores and four: 89 GiB of 1,368 in all, and nearly all of the machine.
    let system =
        |gib: u128| gib * 1_000_000 * 208 * 1_024 / ((2 * 529_426_432 + 4 * 94_035_968) >> 10);
    assert_eq!(heavy.dominant / 1_000, (system(89) + system(178)) / 1_000);
    assert_eq!(heavy.machine, heavy.penalty);
    assert_eq!(comparison.users[&1].machine, 4_000_000);
    assert!(by_user(&comparison).to_svg().is_ok());
    assert!(by_rule(&comparison).to_svg().is_ok());
    assert!(by_memory(&comparison).to_svg().is_ok());
}

#[test]
fn the_recorded_log_is_charged_to_the_last_job() {
    let (Some(list), Some(log)) = (
        fairmesh_needs::traces("swf/MetaCentrum-wagap-2013.machines.txt"),
        fairmesh_needs::traces("swf/MetaCentrum-wagap-2013.swf.gz"),
    ) else {
        return;
    };
    let list = std::fs::read_to_string(list).expect("a readable list");
    let log = std::fs::File::open(log).expect("a readable log");
    let prices = machines(&list).expect("valid");
    let log = BufReader::new(GzDecoder::new(log));
    let comparison = Comparison::read(log, &prices).expect("readable");
    let jobs = comparison.total.jobs + comparison.misfits.0 + comparison.not_run;
    assert_eq!((jobs, comparison.unreadable), (17_900, 0));
    assert!(comparison.total.penalty >= comparison.total.cpu_time);
    let users = comparison.users.values().map(|sums| sums.jobs).sum::<u64>();
    assert_eq!(users, comparison.total.jobs);
}
