//! What quotas without a bank do in a Grid: how strict they are, what a cut costs, how rights follow demand.
//!
//! | module | what it is |
//! |---|---|
//! | [`load`] | jobs of projects, each at its own rate |
//! | [`credit`] | who may say whether a job runs |
//! | [`mesh`] | real ledgers that tell each other of rights, over a plain network |
//! | [`bank`] | what they are compared with: one server that everybody has to ask |
//! | [`field`] | clusters, whose jobs ask before they are queued |
//! | [`strictness`] | experiment E1: modes, from strict to advisory |
//! | [`cut`] | experiment E3: sites, and a bank, that are cut off |
//! | [`factor`] | experiment E7: how much is held of what a job may cost |
//! | [`fairshare`] | experiment E6: a quota that ends, and what fairshare makes of it |
//! | [`result`] | tables, pictures, and what must hold |
//!
//! All but E6 run `fairmesh_quota`'s ledgers, the code that decides at a site, with messages between them that
//! are delivered whole after a fixed time; heads, disks and sessions are those of real sites only in E6 and in
//! the stories of `simnet check`. Jobs ask when they are submitted. Without fairshare, jobs start in the order
//! in which they came.
//!
//! Invariant: a run is a function of its specification and its seed; what must hold is computed from what was
//! measured, and said either way.
//! Deliberately not here: throughput and the cost of a call, which need a machine (`docs/quotas.md`).

pub mod bank;
pub mod credit;
pub mod cut;
pub mod factor;
pub mod fairshare;
pub mod field;
pub mod load;
pub mod mesh;
pub mod result;
pub mod strictness;

use result::Outcome;

/// How much is run.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Whose draws.
    pub seeds: Vec<u64>,
    /// Cores, grants and demand are divided by this: 1 is what the tables in `docs/quotas.md` say.
    pub divisor: u64,
    /// Threads.
    pub threads: usize,
}

/// An experiment, by its name.
pub type Experiment = (&'static str, fn(&Extent) -> Outcome);

/// All of them, by name.
pub const EXPERIMENTS: [Experiment; 4] = [
    ("strictness", strictness::run),
    ("cut", cut::run),
    ("factor", factor::run),
    ("fairshare", fairshare::run),
];

/// Runs `of` for each case and each seed, on several threads; the results by case, then by seed.
pub(crate) fn each<C: Sync, R: Send>(
    extent: &Extent,
    cases: &[C],
    of: impl Fn(&C, u64) -> R + Sync,
) -> Vec<Vec<R>> {
    let seeds = &extent.seeds;
    if extent.threads <= 1 {
        let of = |case| seeds.iter().map(|seed| of(case, *seed)).collect();
        return cases.iter().map(of).collect();
    }
    let count = cases.len() * seeds.len();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let done = std::sync::Mutex::new(Vec::with_capacity(count));
    std::thread::scope(|scope| {
        for _ in 0..extent.threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    let result = of(&cases[at / seeds.len()], seeds[at % seeds.len()]);
                    done.lock()
                        .expect("no thread has panicked")
                        .push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread has panicked");
    done.sort_by_key(|(at, _)| *at);
    let mut results: Vec<Vec<R>> = cases.iter().map(|_| Vec::new()).collect();
    for (at, result) in done {
        results[at / seeds.len()].push(result);
    }
    results
}
