//! The table against the code and against the invariants.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::*;
use crate::invariants::{LIVENESS, TABLE as INVARIANTS};
use crate::liar;

/// Where the macros themselves are.
const SWITCH: &str = "mutant.rs";

/// What has a table of its own, beside its tests: what no simulated site runs, and the rules of rights, which are
/// played with ledgers alone (`crates/quota/tests`). Some of their faults the swarm is to find, too.
const OWN_TABLES: [&str; 2] = ["crates/broker", "crates/quota"];

/// Names of the hooks below a folder, without those below the folders left out.
fn hooks(dir: &Path, left_out: &[&str], names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("the sources are there") {
        let path = entry.expect("it is listed").path();
        if left_out.iter().any(|name| path.ends_with(Path::new(name))) {
            continue;
        }
        if path.is_dir() {
            hooks(&path, left_out, names);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with(SWITCH) {
            let text = fs::read_to_string(&path).expect("it is text");
            let calls = ["mutant!(", "mutated!("]
                .into_iter()
                .flat_map(|call| text.split(call).skip(1));
            names.extend(calls.filter_map(name_of));
        }
    }
}

/// The name with which a macro's arguments begin.
fn name_of(arguments: &str) -> Option<String> {
    let name = arguments
        .trim_start()
        .split(|letter: char| !letter.is_alphanumeric())
        .next()?;
    name.starts_with(char::is_uppercase)
        .then(|| name.to_owned())
}

#[test]
fn each_fault_has_a_row_and_each_row_a_hook() {
    let (mut hooked, mut elsewhere) = (BTreeSet::new(), BTreeSet::new());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in ["crates", "simnet/src"] {
        hooks(&root.join(folder), &OWN_TABLES, &mut hooked);
    }
    for folder in OWN_TABLES {
        hooks(&root.join(folder), &[], &mut elsewhere);
    }
    let mut told: BTreeSet<String> = TABLE.iter().map(|mutant| mutant.name.clone()).collect();
    assert_eq!(told.len(), TABLE.len(), "a name stands for one fault");
    told.retain(|name| !elsewhere.contains(name));
    assert_eq!(hooked, told);
}

#[test]
fn a_fault_is_shown_by_a_lie_that_there_is() {
    let mut lies = TABLE.iter().filter_map(|mutant| mutant.lie.as_deref());
    assert_eq!(lies.find(|lie| liar::named(lie).is_none()), None);
}

#[test]
fn each_invariant_is_meant_to_find_a_fault() {
    let meant: BTreeSet<&str> = TABLE.iter().map(|mutant| mutant.meant.as_str()).collect();
    let names = INVARIANTS.iter().map(|entry| entry.name);
    let unproven: Vec<&str> = names
        .chain([LIVENESS])
        .filter(|name| !meant.contains(name))
        .collect();
    assert_eq!(
        unproven, [""; 0],
        "no fault in the table is meant for these"
    );
}
