//! What a final record reports that its job's instalments do not: energy, and what contradicts them.
//!
//! Invariant: all of this is drawn from a stream of its own, so that it shifts nothing of other jobs; a final record
//! never starts later than its instalments, because that would be another run of the job.

use fairmesh_cluster::{Seed, Stream};
use fairmesh_model::{Millis, Placement, UsageRecord};

use super::Offer;
use crate::swarm::LoadOptions;

/// Power that a core draws at most, watts.
const WATTS_PER_CORE_MAX: u64 = 40;

/// Time by which a job started earlier than its instalments reported, at most.
const EARLIER_MS_MAX: u64 = 3_600_000;

/// The final records of one site.
#[derive(Debug)]
pub(super) struct Finals {
    random: Stream,
    contradict_permille: u64,
    energy_permille: u64,
}

impl Finals {
    pub(super) fn new(seed: Seed, site: usize, load: LoadOptions) -> Self {
        Self {
            random: seed.stream(&format!("swarm final records {site}")),
            contradict_permille: load.contradict_permille,
            energy_permille: load.energy_permille,
        }
    }

    /// Makes the last of these records of one job final. The others are its instalments.
    pub(super) fn finish(&mut self, offers: &mut [Offer]) {
        let Some((last, instalments)) = offers.split_last_mut() else {
            return;
        };
        if self.random.below(1_000) < self.contradict_permille {
            if let Some(first) = instalments
                .first_mut()
                .filter(|_| self.random.below(4) == 0)
            {
                // Instalments contradict each other, too. None starts earlier than the final record.
                let start = first.record.start;
                self.contradict(&mut first.record);
                first.record.start = start;
            }
            self.contradict(&mut last.record);
        }
        if self.random.below(1_000) < self.energy_permille {
            self.meter(&mut last.record);
            for offer in instalments {
                // Some batch systems report energy only when the job has ended.
                if self.random.below(2) == 0 {
                    self.meter(&mut offer.record);
                }
            }
        }
    }

    fn meter(&mut self, record: &mut UsageRecord) {
        let watts = u64::from(record.cores) * self.random.between(1, WATTS_PER_CORE_MAX);
        record.placement.energy_j = record.end.since(record.start).0 * watts / 1_000;
    }

    /// Reports something else of the same job.
    fn contradict(&mut self, record: &mut UsageRecord) {
        let random = &mut self.random;
        let ran = record.end.since(record.start).0;
        match random.below(7) {
            0 => record.end = record.start,
            1 => record.end = record.start.after(Millis(random.below(ran.max(1)))),
            2 => record.start = record.start.before(Millis(random.below(EARLIER_MS_MAX))),
            3 => {
                record.placement.queue = match record.placement.queue {
                    Some(_) => None,
                    None => Some("long".to_owned()),
                };
            }
            drawn => {
                // Chunks would no longer add up.
                record.placement = Placement {
                    chunks: Vec::new(),
                    ..record.placement.clone()
                };
                let cores = record.cores;
                let less = u32::try_from(random.between(1, u64::from(cores))).unwrap_or(1);
                match drawn {
                    4 => record.cores = less,
                    5 => record.cores = cores.saturating_add(less),
                    _ if record.gpus > 0 => record.gpus = 0,
                    _ => record.gpus = 1 + less % 4,
                }
            }
        }
    }
}
