//! The tally: what the store should hold, told in one record and checked whenever it is opened.
//!
//! sled's recovery can lose what it had synced without a word: when the end of its log is cut off
//! it opens what is left, and when a bit flips it may skip a part of the log and go on behind it, so
//! that single records are gone or are those of an earlier day (both measured here). So each batch
//! also writes one record with its number and the sum of all records' checksums, and opening adds
//! them up again. A store that does not come out at its tally is damaged.
//!
//! Invariant: `sum` is the sum, modulo 2^64, of the checksums of all records in the tree; a record's
//! checksum covers its table, key and value. That the end of the log is not lost together with its
//! tally is what `mark` is for.

use std::collections::BTreeMap;

use sled::{Batch, IVec};

use super::Write;
use super::record::{
    CHUNK_BYTES, CHUNK_PREFIX, Stored, chunk_key, chunks_of, disk_key, disk_value, parse_value,
};

/// The key of the tally; no table has this byte.
pub(super) const TALLY_KEY: [u8; 1] = [0];

pub(super) type Counts = BTreeMap<u8, usize>;

/// Number of the newest batch, the sum of the checksums, and the number of the newest change with marks of jobs
/// (`jobs`; 0 if there was none).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub(super) number: u64,
    sum: u64,
    pub(super) jobs: u64,
}

impl Tally {
    /// The tally that the store itself tells, if its records come to that sum, and how many records there are in each
    /// table.
    pub(super) fn check(tree: &sled::Db) -> sled::Result<Result<(Self, Counts), String>> {
        let told = tree.get(TALLY_KEY)?;
        let told = told.map_or(Some(Self::default()), |told| Self::parse(&told));
        let mut found = 0_u64;
        let mut counts = Counts::new();
        for item in tree.range([1_u8]..[CHUNK_PREFIX]) {
            let (key, value) = item?;
            *counts.entry(key[0]).or_default() += 1;
            found = found.wrapping_add(sum_of(&value));
        }
        Ok(match told {
            Some(told) if told.sum == found => Ok((told, counts)),
            Some(told) => Err(format!(
                "records are missing or out of date (the last batch was {})",
                told.number
            )),
            None => Err("its tally is not readable".to_owned()),
        })
    }

    /// Turns `writes` into the batch `number`, with the new tally and the number of the change of marks that belongs
    /// to it; a later write to a key replaces an earlier. What an earlier release has stored elsewhere is moved with
    /// the number that there is.
    pub(super) fn batch<'a>(
        &mut self,
        tree: &sled::Db,
        number: u64,
        writes: impl Iterator<Item = &'a Write>,
        jobs: Option<u64>,
    ) -> sled::Result<Batch> {
        let mut batch = Batch::default();
        let last_of_key: BTreeMap<Vec<u8>, Option<&[u8]>> = writes
            .map(|write| (disk_key(write.table, &write.key), write.value.as_deref()))
            .collect();
        let mut next = *self;
        for (disk_key, value) in last_of_key {
            let old = tree.get(&disk_key)?;
            next.replace(&mut batch, disk_key, old.as_ref(), value);
        }
        assert!(number >= self.number, "no batch has an earlier number");
        next.number = number;
        next.jobs = jobs.unwrap_or(self.jobs);
        batch.insert(&TALLY_KEY, next.bytes().as_slice());
        *self = next;
        Ok(batch)
    }

    fn replace(
        &mut self,
        batch: &mut Batch,
        disk_key: Vec<u8>,
        old: Option<&IVec>,
        new: Option<&[u8]>,
    ) {
        let chunks_new = new.map_or(0, chunks_of);
        if let Some(old) = old {
            self.sum = self.sum.wrapping_sub(sum_of(old));
            if let Some((_, Stored::Chunks(chunks_old))) = parse_value(old) {
                (chunks_new..chunks_old).for_each(|n| batch.remove(chunk_key(&disk_key, n)));
            }
        }
        let Some(value) = new else {
            batch.remove(disk_key);
            return;
        };
        if chunks_new > 0 {
            for (n, part) in (0..).zip(value.chunks(CHUNK_BYTES)) {
                batch.insert(chunk_key(&disk_key, n), part);
            }
        }
        let stored = disk_value(&disk_key, value);
        self.sum = self.sum.wrapping_add(sum_of(&stored));
        batch.insert(disk_key, stored);
    }

    fn bytes(self) -> Vec<u8> {
        let numbers = [self.number, self.sum, self.jobs];
        numbers.map(u64::to_be_bytes).concat()
    }

    /// Earlier releases had no changes of marks.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let (number, sum, jobs) = match numbers {
            [number, sum] => (number, sum, &[0; 8]),
            [number, sum, jobs] => (number, sum, jobs),
            _ => return None,
        };
        let [number, sum, jobs] = [number, sum, jobs].map(|bytes| u64::from_be_bytes(*bytes));
        rest.is_empty().then_some(Self { number, sum, jobs })
    }
}

/// The checksum in a value on disk; what has none counts as zero and is caught when it is read.
fn sum_of(stored: &[u8]) -> u64 {
    parse_value(stored).map_or(0, |(sum, _)| u64::from_be_bytes(sum))
}
