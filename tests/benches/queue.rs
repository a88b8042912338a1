//! Ten thousand accounts in a real Slurm: `cargo bench -p fairmesh-tests --bench queue -- 10000 200` queues a
//! job of each, compares `sprio -l` with the node's order, and lets the first 200 start.
//!
//! It needs what the plug-in's tests need; where that is absent it says so and measures nothing.

use fairmesh_tests::queue::each_account_has_its_place;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fairmesh-under-test");

fn main() -> anyhow::Result<()> {
    let numbers: Vec<usize> = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let [accounts, starts] = numbers[..] else {
        anyhow::bail!("say how many accounts, and how many of their jobs are to start: 10000 200");
    };
    each_account_has_its_place(PROGRAM, accounts, starts)
}
