//! Keys of `[charging]` and `[[machine]]` that change no charge.
//!
//! Invariant: a key is reported only if no job of this site could be charged otherwise because of it, by what the file
//! shows. A charter chooses the rule and the discounts of its VO, and the file does not show them: where there is a VO,
//! its charter may use what the site's own rule does not.
//! Deliberately not here: what makes the tables invalid (`charging`).

use fairmesh_model::{Share, Terms};
use fairmesh_site::Charging;
use toml::Spanned;

use super::super::text::{FileError, Source};
use super::{RawCharging, RawMachine};

/// Each such key, in the order of the tables.
pub(in crate::config) fn without_effect(
    source: Source<'_>,
    (raw, machines): (&RawCharging, &[RawMachine]),
    charging: &Charging,
    has_vos: bool,
) -> Vec<FileError> {
    let mut found = listed_twice(source, raw);
    if has_vos {
        return found;
    }
    let lists = [
        ("preemptible", &raw.preemptible, Terms::Preemptible),
        ("idle", &raw.idle, Terms::Idle),
    ];
    for (name, list, terms) in lists {
        let is_full = charging.local_discounts.of(terms) == Share::WHOLE;
        if let Some(first) = list.first().filter(|_| is_full) {
            let problem = "the list has no effect: such jobs are charged in full here";
            let help = format!(
                "write their percentage, such as discounts = {{ {name} = 50 }}, or remove the list"
            );
            let key = format!("charging.{name}");
            found.push(source.wrong(&key, first, problem).with_help(help));
        }
    }
    let looks = charging.local_rule.looks_at_machines();
    if let Some(machine) = machines.first().filter(|_| !looks) {
        let problem = "[[machine]] has no effect: the rule charges the same on every machine";
        let help = "set charging.local to normalised-time, to weights with spec_max, or to penalty, or remove the \
                    tables; a VO's charter may use them once [vos] has the VO";
        let error = source.wrong("machine.class", &machine.class, problem);
        found.push(error.with_help(help));
    }
    found
}

/// Words that are in both lists: `idle` decides.
fn listed_twice(source: Source<'_>, raw: &RawCharging) -> Vec<FileError> {
    let is_idle = |word: &&Spanned<String>| {
        let mut idle = raw.idle.iter();
        idle.any(|other| other.get_ref() == word.get_ref())
    };
    let twice = raw.preemptible.iter().filter(is_idle);
    let error = |word: &Spanned<String>| {
        let problem = format!(
            "`{}` has no effect here: it is in charging.idle, too, which decides",
            word.get_ref()
        );
        let error = source.wrong("charging.preemptible", word, problem);
        error.with_help("keep it in one of the two lists")
    };
    twice.map(error).collect()
}
