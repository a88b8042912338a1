//! What shares mean, in cases of other schedulers and in cases with everybody busy.
//!
//! The trees, shares, usages and expected orders of the peers come from their public tests and manuals: numbers
//! only, and each table names its source. Where our order is not the peer's, the case records our order and the reason.
//! The 27 orders: flux-accounting 9, OpenPBS 5, YuniKorn 5, Kueue 3, Slurm 3, HTCondor 2; a few rows are added.
//! Deliberately not here: FSGrid's and MetaCentrum's vectors, which lie outside the repository (`vectors`).

mod busy;
mod case;
mod charges;
mod edges;
mod flux;
mod htcondor;
mod kueue;
mod openpbs;
mod slurm;
mod tree;
mod yunikorn;
