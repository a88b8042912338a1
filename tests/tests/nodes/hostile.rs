//! Sites in namespaces of their own, one of them hostile, and then more than are honest: the others go on. How long look-ups take under each attack
//! `cargo bench -p fairmesh-tests --bench hostile` measures.

use std::time::Duration;

use anyhow::ensure;
use fairmesh_needs::Need;
use fairmesh_tests::hostile::{Attack, World};

use crate::PROGRAM;

const HOSTILE: &str = env!("CARGO_BIN_EXE_hostile");

/// How long each attack goes on.
const TIME: Duration = Duration::from_secs(2);

#[test]
fn whatever_a_member_or_users_do_the_others_look_up_count_and_spread() -> anyhow::Result<()> {
    let Some(mut world) = World::start(PROGRAM)? else {
        fairmesh_needs::lacks(Need::Root, "this user may not make network namespaces");
        return Ok(());
    };
    let quiet = world.attack(Attack::Quiet, HOSTILE, TIME)?;
    for attack in Attack::ALL {
        let harm = world.attack(attack, HOSTILE, TIME)?;
        ensure!(harm.lookups > 100, "{attack:?}: {harm:?}");
        // Of a debug build, all attacks before this one included.
        let grown = harm.memory_kib.saturating_sub(quiet.memory_kib);
        ensure!(grown < 256 << 10, "{attack:?}: {quiet:?} {harm:?}");
        ensure!(harm.log_bytes < 64 << 10, "{attack:?}: {harm:?}");
        ensure!(harm.files < 1_024, "{attack:?}: {harm:?}");
    }
    Ok(())
}
