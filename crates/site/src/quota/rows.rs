//! A site's rights as parts of its head and as rows of its store.
//!
//! Part names are short, so a part is named by the first half of its allocation's hash and the slice's index. The
//! whole id of the slice is in the part, before the row.
//!
//! Invariant: [`read_part`] reads a part that passes [`check`] as one row of the slice in its name.

use fairmesh_gossip::{PART_BYTES_MAX, PartKey};
use fairmesh_model::{ContentHash, JobKey, VoId, cbor};
use fairmesh_quota::{Mark, Row, SliceId};

use crate::kinds::RIGHTS;
use crate::store::{Table, Write};

/// Bytes of an allocation's hash in the name of a part: finding two allocations that share them takes 2^64 hashes.
const PREFIX_BYTES: usize = 16;

/// Largest row of a hold in bytes: its parts are a few slices.
const MARK_BYTES_MAX: usize = 1 << 16;

/// Name of the part for a slice.
pub(crate) fn part_key(id: SliceId) -> PartKey {
    PartKey::new(RIGHTS, &name_of(id))
}

/// A row as a part.
pub(crate) fn part(id: SliceId, row: &Row) -> Vec<u8> {
    let mut bytes = id.to_bytes().to_vec();
    bytes.extend(row.to_bytes());
    bytes
}

/// Reads a part of a head that was checked.
pub(crate) fn read_part(bytes: &[u8]) -> Option<(SliceId, Row)> {
    let (id, row) = bytes.split_at_checked(SliceId::BYTES)?;
    Some((SliceId::from_bytes(id)?, Row::from_bytes(row).ok()?))
}

/// Checks a part and returns how many rows of a head's budget it takes: one for each counter.
///
/// # Errors
/// Why it is not a part of that name.
pub(crate) fn check(key: &[u8], bytes: &[u8]) -> Result<u32, String> {
    let (id, row) = bytes
        .split_at_checked(SliceId::BYTES)
        .ok_or("rights of no slice")?;
    let id = SliceId::from_bytes(id).ok_or("rights of no slice")?;
    // Otherwise a site could publish two rows of one slice, and readers would disagree about which counts.
    if name_of(id) != key {
        return Err("rights under another slice's name".to_owned());
    }
    let row = Row::from_bytes(row).map_err(|error| error.to_string())?;
    let cells = row.cells().count();
    u32::try_from(cells.max(1)).map_err(|error| error.to_string())
}

fn name_of(id: SliceId) -> Vec<u8> {
    let bytes = id.to_bytes();
    let (allocation, index) = bytes.split_at(bytes.len() - 4);
    [&allocation[..PREFIX_BYTES], index].concat()
}

/// The store's row of the site's rights to a slice; `None` deletes it.
pub(crate) fn rights_row(vo: VoId, id: SliceId, row: Option<&Row>) -> Write {
    let key = [vo.as_bytes().as_slice(), &id.to_bytes()].concat();
    match row {
        Some(row) => Write::set(Table::Rights, key, row.to_bytes()),
        None => Write::delete(Table::Rights, key),
    }
}

/// Reads what [`rights_row`] has written; `None` if it is no such row.
pub(crate) fn parse_rights(key: &[u8], value: &[u8]) -> Option<(VoId, SliceId, Row)> {
    let (vo, id) = key.split_first_chunk()?;
    let (id, row) = (SliceId::from_bytes(id)?, Row::from_bytes(value).ok()?);
    Some((VoId::from_bytes(*vo), id, row))
}

/// The store's row of a job's mark; `None` deletes it. The key contains a hash of the job's key, which may be too
/// long for a key of the store.
pub(crate) fn hold_row(vo: VoId, job: &JobKey, mark: Option<&Mark>) -> Write {
    let key = [vo.as_bytes().as_slice(), &job_hash(job)].concat();
    match mark {
        Some(mark) => Write::set(Table::Holds, key, cbor::to_vec(&(job, mark))),
        None => Write::delete(Table::Holds, key),
    }
}

/// Reads what [`hold_row`] has written; `None` if it is no such row.
pub(crate) fn parse_hold(key: &[u8], value: &[u8]) -> Option<(VoId, JobKey, Mark)> {
    let (vo, hash) = key.split_first_chunk()?;
    let (job, mark) = cbor::from_slice::<(JobKey, Mark)>(value, MARK_BYTES_MAX).ok()?;
    (job_hash(&job) == hash).then_some((VoId::from_bytes(*vo), job, mark))
}

fn job_hash(job: &JobKey) -> Vec<u8> {
    ContentHash::of(&cbor::to_vec(job)).as_bytes().to_vec()
}

// The largest row and the slice's id fit into a part.
const _: () = assert!((60 << 10) + SliceId::BYTES <= PART_BYTES_MAX);

#[cfg(test)]
mod tests {
    use fairmesh_model::AllocationId;
    use fairmesh_quota::Cell;

    use super::*;

    fn slice(allocation: u8, index: u32) -> SliceId {
        let allocation = AllocationId::from_bytes([allocation; 32]);
        SliceId { allocation, index }
    }

    #[test]
    fn a_part_is_read_back_and_belongs_to_its_name() {
        let mut row = Row::default();
        row.add(Cell::Used, 7);
        row.add(Cell::Held, 3);
        let id = slice(9, 4);
        let bytes = part(id, &row);
        assert_eq!(check(part_key(id).key(), &bytes), Ok(2));
        assert_eq!(read_part(&bytes), Some((id, row.clone())));
        for other in [slice(8, 4), slice(9, 5)] {
            assert!(check(part_key(other).key(), &bytes).is_err());
        }
        assert!(check(part_key(id).key(), &bytes[..20]).is_err());
        assert!(check(part_key(id).key(), &[&bytes[..], b"x"].concat()).is_err());
        let vo = VoId::from_bytes([1; 32]);
        let write = rights_row(vo, id, Some(&row));
        let value = write.value.expect("it is set");
        assert_eq!(parse_rights(&write.key, &value), Some((vo, id, row)));
        assert_eq!(parse_rights(&write.key[1..], &value), None);
    }
}
