//! Bar charts: whose part of all charges the rules change, and for what kind of job.
//!
//! Invariant: bars are parts of all charges under one rule, so that the rules are compared and not
//! their units. Deliberately not here: how bars are drawn (`figures`).

use super::{Comparison, MEMORY_CLASSES_GIB, Sums};
use crate::figures::{Bars, Figure, Spread, Texts};

/// Users that are drawn: those whose part changes most.
const USERS: usize = 10;

/// The users whose part changes most, from who pays most more to who pays most less.
pub fn by_user(of: &Comparison) -> Figure {
    let change = |sums: &Sums| {
        let (cpu_time, penalty) = parts(sums, &of.total);
        penalty - cpu_time
    };
    let mut users: Vec<(&u64, &Sums)> = of.users.iter().collect();
    users.sort_by(|a, b| change(b.1).abs().total_cmp(&change(a.1).abs()));
    users.truncate(USERS);
    users.sort_by(|a, b| change(b.1).total_cmp(&change(a.1)));
    let gib = |sums: &Sums| sums.memory as f64 / 1_024.0 / sums.cpu_time.max(1) as f64;
    let name = |(user, _): &(&u64, &Sums)| format!("u{user}");
    let dearer = users.iter().filter(|(_, sums)| change(sums) > 0.0);
    let dearer: Vec<String> = dearer
        .map(|(user, sums)| format!("u{user} ({:.0} GiB)", gib(sums)))
        .collect();
    let texts = Texts {
        name: "charging-users",
        title: "Who pays more by the penalty than by CPU time",
        caption: &format!(
            "MetaCentrum 2013, zewura and zegox: the {USERS} of {} users whose part changes most. \
             A machine has 6.3 or 7.5 GiB for each core. Who asked for more kept cores from others: \
             {}.",
            of.users.len(),
            dearer.join(", ")
        ),
        x_label: "user",
        y_label: "part of all charges, %",
    };
    let sums = users.iter().map(|user| *user.1);
    summary(texts, &of.total, users.iter().map(name).zip(sums))
}

/// Jobs by the memory that they asked for per core.
pub fn by_memory(of: &Comparison) -> Figure {
    let least = std::iter::once(0).chain(MEMORY_CLASSES_GIB);
    let most = MEMORY_CLASSES_GIB.into_iter().map(Some).chain([None]);
    let names = least.zip(most).map(|(least, most)| match most {
        Some(most) => format!("{least}-{most}"),
        None => format!("> {least}"),
    });
    let texts = Texts {
        name: "charging-memory",
        title: "What is paid for, by memory asked for per core",
        caption: "The same jobs. Up to the 6.3 to 7.5 GiB that a machine has for each core both rules charge \
                  the cores; beyond, the penalty charges the part of the machine's memory.",
        x_label: "GiB per core",
        y_label: "part of all charges, %",
    };
    summary(texts, &of.total, names.zip(of.memory.iter().copied()))
}

/// The rules, and what some jobs are charged by each.
type Rule = (&'static str, fn(&Sums) -> u128);
const RULES: [Rule; 4] = [
    ("CPU time", |sums| sums.cpu_time),
    ("DRF", |sums| sums.dominant),
    ("PE of the machine used", |sums| sums.machine),
    ("penalty", |sums| sums.penalty),
];

/// The users on whom the four rules differ most.
pub fn by_rule(of: &Comparison) -> Figure {
    let part = |sums: &Sums, rule: &Rule| percent((rule.1)(sums), (rule.1)(&of.total));
    let apart = |sums: &Sums| {
        let parts = RULES.map(|rule| part(sums, &rule));
        parts.into_iter().fold(0.0, f64::max) - parts.into_iter().fold(100.0, f64::min)
    };
    let mut users: Vec<(&u64, &Sums)> = of.users.iter().collect();
    users.sort_by(|a, b| apart(b.1).total_cmp(&apart(a.1)));
    users.truncate(USERS);
    let bars =
        RULES.map(|rule| Bars::new(rule.0, users.iter().map(|user| one(part(user.1, &rule)))));
    let texts = Texts {
        name: "charging-rules",
        title: "Four rules of charging on one log",
        caption: &format!(
            "MetaCentrum 2013, zewura and zegox: the {USERS} of {} users on whom the rules differ most. DRF: \
             the larger part of all CPUs and of all memory. PE of the machine used: the larger part of the \
             machine that ran the job, in its CPUs. Penalty: the least of that among machines that fit.",
            of.users.len()
        ),
        x_label: "user",
        y_label: "part of all charges, %",
    };
    texts.bars(users.iter().map(|(user, _)| format!("u{user}")), bars)
}

fn summary(texts: Texts<'_>, total: &Sums, groups: impl Iterator<Item = (String, Sums)>) -> Figure {
    let (groups, sums): (Vec<_>, Vec<_>) = groups.unzip();
    let bars = |name: &str, part: fn((f64, f64)) -> f64| {
        Bars::new(name, sums.iter().map(|sums| one(part(parts(sums, total)))))
    };
    texts.bars(
        groups,
        [
            bars("CPU time", |parts| parts.0),
            bars("penalty", |parts| parts.1),
        ],
    )
}

/// A bar of one number.
fn one(number: f64) -> Spread {
    Spread {
        mean: number,
        min: number,
        max: number,
    }
}

/// Percent of all charges, by CPU time and by the penalty.
pub(super) fn parts(sums: &Sums, total: &Sums) -> (f64, f64) {
    (
        percent(sums.cpu_time, total.cpu_time),
        percent(sums.penalty, total.penalty),
    )
}

fn percent(part: u128, whole: u128) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
