//! Checking parts of heads before they are taken.
//!
//! Invariant: what is refused here no honest site signs, and it is refused by every member alike: the
//! answer depends on the part, its head and the VO's window length, which never changes.

use fairmesh_gossip::{Head, Kinds, PartKey};
use fairmesh_model::{WallTime, WindowLength, mutated};
use fairmesh_usage::{Slice, check};

use crate::advert::part;
use crate::audit;
use crate::kinds::{
    ADVERT, AHEAD_MAX, AUDIT, DESCRIPTION, DESCRIPTION_PIECES_MAX, REACH, RIGHTS, RUNNING, USAGE,
    usage_slice,
};
use crate::quota::rows;
use crate::reach::Reach;

/// The kinds of a VO's parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SiteKinds {
    pub(crate) length: WindowLength,
}

impl Kinds for SiteKinds {
    fn check(&self, head: &Head, key: &PartKey, bytes: &[u8]) -> Result<u32, String> {
        match key.kind() {
            USAGE => {
                self.check_time(head, key, bytes)?;
                check(bytes).map_err(|error| error.to_string())
            }
            RUNNING => {
                slice_of(key)?;
                check(bytes).map_err(|error| error.to_string())
            }
            DESCRIPTION if matches!(key.key(), [piece] if *piece < DESCRIPTION_PIECES_MAX) => {
                Ok(64)
            }
            DESCRIPTION => Err("bad piece of a description".to_owned()),
            AUDIT => audit::check(key.key(), bytes),
            RIGHTS => rows::check(key.key(), bytes),
            ADVERT => part::check(head, key.key(), bytes),
            REACH if !key.key().is_empty() => Err("there is one reach, without a name".to_owned()),
            REACH => self.check_time(head, key, bytes).map(|()| 1),
            // A later version's: kept and passed on, as bytes.
            _ => Ok(u32::try_from(bytes.len() / 64 + 1).unwrap_or(u32::MAX)),
        }
    }

    fn check_time(&self, head: &Head, key: &PartKey, bytes: &[u8]) -> Result<(), String> {
        let latest = head.at.after(AHEAD_MAX);
        match key.kind() {
            // Usage weighs most when it is new, so nobody may claim what has not come.
            USAGE => match slice_of(key)?.span.start(self.length) > latest {
                true if !mutated!(FutureUsageTaken) => {
                    Err("it counts in a time that has not come".to_owned())
                }
                _ => Ok(()),
            },
            ADVERT => part::check(head, key.key(), bytes).map(drop),
            REACH => match Reach::from_bytes(bytes) {
                Some(reach) if reach.newest() <= latest => Ok(()),
                _ => Err("it reaches into a time that has not come".to_owned()),
            },
            _ => Ok(()),
        }
    }

    fn spare_since(&self, key: &PartKey) -> Option<WallTime> {
        usage_slice(key).map(|slice| slice.span.start(self.length))
    }
}

fn slice_of(key: &PartKey) -> Result<Slice, String> {
    Slice::from_bytes(key.key()).ok_or_else(|| "bad name of a table".to_owned())
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{ContentHash, Incarnation, Millis, Seq, SigningKey, VoId};

    use super::*;

    #[test]
    fn no_head_reaches_into_a_time_that_has_not_come() {
        let head = Head {
            vo: VoId::from_bytes([7; 32]),
            site: SigningKey::from_secret(&[1; 32]).site_id(),
            incarnation: Incarnation(1),
            seq: Seq(1),
            at: WallTime(1_000),
            root: ContentHash::of(b""),
            covers: Vec::new(),
        };
        let length = WindowLength::HOUR;
        let check = |key: &[u8], bytes: &[u8]| {
            SiteKinds { length }.check(&head, &PartKey::new(REACH, key), bytes)
        };
        let latest = head.at.after(AHEAD_MAX);
        let reach = |ended, running| Reach { ended, running }.to_bytes();
        assert_eq!(check(&[], &reach(latest, latest)), Ok(1));
        let later = latest.after(Millis(1));
        assert!(check(&[], &reach(later, latest)).is_err());
        assert!(check(&[], &reach(latest, later)).is_err());
        assert!(check(&[], &[0; 15]).is_err(), "not two times");
        assert!(check(&[0], &reach(latest, latest)).is_err(), "has a name");
    }
}
