//! `simnet mutants`.
//!
//! Plants each fault of the table in turn, runs seeds until something finds it, and prints what did.
//!
//! Invariant: the rows are those of the table in its order, whichever thread was first; the last line
//! is `K of N found`. Deliberately not here: the faults (`mutants`) and the hooks (the crates).

use std::process::ExitCode;

use crate::mutants::Layer;

/// Options of `simnet mutants`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Most seeds that are run for each fault.
    #[arg(long, default_value_t = 100)]
    pub seeds: u64,
    /// The first seed; the others follow it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only the fault of this name; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Only faults of this layer.
    #[arg(long)]
    pub layer: Option<Layer>,
    /// Print the outcome as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Runs it.
#[cfg(not(feature = "mutants"))]
pub fn run(_args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!(
        "faults cannot be planted in this build: \
         cargo run --release -p simnet --features mutants -- mutants"
    )
}

#[cfg(feature = "mutants")]
pub use planted::run;

#[cfg(feature = "mutants")]
mod planted {
    use fairmesh_cluster::Seed;

    use super::*;
    use crate::check::pool;
    use crate::mutants::hunt::hunt;
    use crate::mutants::{Mutant, TABLE};

    impl Args {
        fn chosen(&self) -> Vec<&'static Mutant> {
            let is_named =
                |mutant: &Mutant| self.only.is_empty() || self.only.contains(&mutant.name);
            let is_there = |mutant: &Mutant| self.layer.is_none_or(|layer| mutant.layer == layer);
            let all = TABLE.iter();
            all.filter(|mutant| is_named(mutant) && is_there(mutant))
                .collect()
        }
    }

    /// Runs it.
    pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
        let chosen = args.chosen();
        std::panic::set_hook(Box::new(|_| {}));
        let job = |index: usize| hunt(chosen[index], Seed(args.seed), args.seeds);
        let mut found = 0;
        pool::in_order(chosen.len(), pool::threads(), job, |index, hunted| {
            let mutant = chosen[index];
            found += usize::from(hunted.found.is_some());
            let (by, msg) = hunted
                .found
                .as_ref()
                .map_or(("-", ""), |f| (f.by.as_str(), f.message.as_str()));
            sayln!(
                "{} | {:?} | {} | {} | {} | {} | {}",
                mutant.name,
                mutant.layer,
                mutant.meant,
                hunted.seeds,
                hunted.reached,
                by,
                msg
            );
            true
        });
        sayln!("{found} of {} found", chosen.len());
        Ok(ExitCode::from(u8::from(found < chosen.len())))
    }
}
