//! What quotas add to `sbatch`: `cargo bench -p fairmesh-tests --bench submit` submits a thousand jobs without the
//! look at the quota and a thousand with it, twice each.
//!
//! It needs a Slurm; where that is absent it says so and measures nothing.

const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

fn main() -> anyhow::Result<()> {
    fairmesh_tests::quota::measure_submission(PROGRAM, 1_000)
}
