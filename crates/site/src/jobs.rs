//! The part of a site that concerns jobs: what runs, what was charged and taken back, and whose jobs map nowhere.

use std::collections::BTreeMap;

use fairmesh_model::{Origin, WallTime};

use crate::advert::sources::Sources;
use crate::correct::Refund;
use crate::instalments::Instalments;
use crate::remap::Relocation;
use crate::running::Running;

/// What is known of an origin that maps nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Unmapped {
    pub(crate) records: u64,
    pub(crate) charge: u64,
    pub(crate) last: WallTime,
}

/// What a site knows of jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// What runs here, as the owner's levels count it.
    pub(crate) running: Running,
    /// What the scheduler reported last of free and waiting CPUs.
    pub(crate) sources: Sources,
    pub(crate) unmapped: BTreeMap<Origin, Unmapped>,
    /// What running jobs are charged for, by the keys of their marks.
    pub(crate) instalments: BTreeMap<Vec<u8>, Instalments>,
    /// Jobs that were taken back, by the keys of their marks.
    pub(crate) refunds: BTreeMap<Vec<u8>, Refund>,
    /// Usage that moved to other accounts.
    pub(crate) relocations: BTreeMap<Vec<u8>, Relocation>,
    /// How often since the start the mark of a job that has ended changed, or the rules by which jobs are charged.
    pub(crate) marks_moved: u64,
}
