//! What each attack of `fairmesh_tests::hostile` does to a node's look-ups, its memory and its files, while four honest
//! sites count on; at last with more hostile members than honest. `cargo bench -p fairmesh-tests --bench hostile
//! [-- SECONDS]`, as root; a minute in all unless told otherwise.
//!
//! Goal: 99 % of look-ups within twice what they take at rest, and what is counted reaches everybody.

use std::time::Duration;

use anyhow::Context as _;
use fairmesh_tests::hostile::{Attack, World};

fn main() -> anyhow::Result<()> {
    let seconds = std::env::args().find_map(|word| word.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(60)) / u32::try_from(Attack::ALL.len())?;
    let world = World::start(env!("CARGO_BIN_EXE_fairmesh-under-test"))?;
    let mut world = world.context("only root makes network namespaces")?;
    println!("| attack | look-ups | middle | 99 % | to all within | memory | log | data | files |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for attack in Attack::ALL {
        let harm = world.attack(attack, env!("CARGO_BIN_EXE_hostile"), time)?;
        println!(
            "| {} | {} | {:.0?} | {:.0?} | {:.1?} | {} MiB | {} kB | {} kB | {} |",
            attack.word(),
            harm.lookups,
            harm.middle,
            harm.p99,
            harm.spread,
            harm.memory_kib >> 10,
            harm.log_bytes / 1_000,
            harm.data_bytes / 1_000,
            harm.files
        );
    }
    Ok(())
}
