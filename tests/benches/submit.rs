//! What quotas add to `sbatch`: `cargo bench -p fairmesh-tests --bench submit` submits a thousand jobs without the
//! look at the quota and a thousand with it, twice each.
//!
//! It needs a Slurm; where that is absent it says so and measures nothing. `FAIRMESH_PROGRAM` names another build of
//! `fairmesh` to run the node with.

const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

fn main() -> anyhow::Result<()> {
    let program = std::env::var("FAIRMESH_PROGRAM");
    fairmesh_tests::quota::measure_submission(program.as_deref().unwrap_or(PROGRAM), 1_000)
}
