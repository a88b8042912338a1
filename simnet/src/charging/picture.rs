//! Two bar charts: whose part of all charges the rules change, and for what kind of job.
//!
//! Invariant: bars are parts of all charges under one rule, so that the rules are compared and not
//! their units. Deliberately not here: how bars are drawn (`figures`).

use super::{Comparison, MEMORY_CLASSES_GIB, Sums};
use crate::figures::{Bars, Spread, Summary};

/// Users that are drawn: those whose part changes most.
const USERS: usize = 10;

/// The users whose part changes most, from who pays most more to who pays most less.
pub fn by_user(of: &Comparison) -> Summary {
    let change = |sums: &Sums| {
        let (cpu_time, penalty) = parts(sums, &of.total);
        penalty - cpu_time
    };
    let mut users: Vec<(&u64, &Sums)> = of.users.iter().collect();
    users.sort_by(|a, b| change(b.1).abs().total_cmp(&change(a.1).abs()));
    users.truncate(USERS);
    users.sort_by(|a, b| change(b.1).total_cmp(&change(a.1)));
    let gib = |sums: &Sums| sums.memory as f64 / 1_024.0 / sums.cpu_time.max(1) as f64;
    let name = |(user, sums): &(&u64, &Sums)| format!("u{user} {:.1}", gib(sums));
    summary(
        "charging-users",
        "Who pays more by the penalty than by CPU time",
        "user, and the GiB that he asked for per core",
        &of.total,
        users.iter().map(name).zip(users.iter().map(|user| *user.1)),
        &format!(
            "MetaCentrum 2013, zewura and zegox: the {USERS} of {} users whose part changes most. \
             A machine has 6.3 or 7.5 GiB for each core; who asks for more keeps cores from others \
             and pays for them.",
            of.users.len()
        ),
    )
}

/// Jobs by the memory that they asked for per core.
pub fn by_memory(of: &Comparison) -> Summary {
    let least = std::iter::once(0).chain(MEMORY_CLASSES_GIB);
    let most = MEMORY_CLASSES_GIB.into_iter().map(Some).chain([None]);
    let names = least.zip(most).map(|(least, most)| match most {
        Some(most) => format!("{least}-{most}"),
        None => format!("> {least}"),
    });
    summary(
        "charging-memory",
        "What is paid for, by memory asked for per core",
        "GiB per core",
        &of.total,
        names.zip(of.memory.iter().copied()),
        "The same jobs. Up to the 6.3 to 7.5 GiB that a machine has for each core both rules charge \
         the cores; beyond, the penalty charges the part of the machine's memory.",
    )
}

fn summary(
    name: &str,
    title: &str,
    x_label: &str,
    total: &Sums,
    groups: impl Iterator<Item = (String, Sums)>,
    caption: &str,
) -> Summary {
    let (groups, sums): (Vec<_>, Vec<_>) = groups.unzip();
    let bars = |name: &str, part: fn((f64, f64)) -> f64| Bars {
        name: name.to_owned(),
        spreads: sums
            .iter()
            .map(|sums| Spread::of(&[part(parts(sums, total))]))
            .collect(),
    };
    Summary {
        name: name.to_owned(),
        title: title.to_owned(),
        caption: caption.to_owned(),
        x_label: x_label.to_owned(),
        y_label: "part of all charges, %".to_owned(),
        y_range: None,
        groups,
        bars: vec![
            bars("CPU time", |parts| parts.0),
            bars("penalty", |parts| parts.1),
        ],
        reference: None,
    }
}

/// Percent of all charges, by CPU time and by the penalty.
pub fn parts(sums: &Sums, total: &Sums) -> (f64, f64) {
    let percent = |part: u128, whole: u128| 100.0 * part as f64 / whole.max(1) as f64;
    (
        percent(sums.cpu_time, total.cpu_time),
        percent(sums.penalty, total.penalty),
    )
}
