//! `site.state`: the small file outside the store that must survive the store's loss, and the incarnation that it
//! guards.
//!
//! The file is a SHA-256 hash (32 bytes) and the canonical CBOR that it covers.
//!
//! Invariants: no node starts on the folder of another site's key, unless that key takes the folder over. The file
//! holds the old or the new state as a whole at any moment: it is written under another name, synced and renamed, and
//! the folder is synced. Only after that is the incarnation used.

use fairmesh_model::cbor::{self, CborError};
use fairmesh_model::{ContentHash, Incarnation, SiteId, WallTime, mutant, mutated};
use serde::{Deserialize, Serialize};

use crate::op::{Op, SIDE, SIDE_NEW};

/// The store's format that this release reads and writes. A folder of another format is refused; 1 was that of the
/// first edition, which published its usage in another way.
pub const STORE_FORMAT: u32 = 2;

/// The advice for the operator of a folder of the first edition, for messages.
pub const FIRST_EDITION: &str = "The store beside it was written by the first edition of Fairmesh, whose \
     counters this release does not read; nothing in the folder was touched. Move the whole folder away \
     and keep it, start the node again, and feed it the records of the VO's history once more: see \
     \"Coming from the first edition\" in CHANGELOG.md";

/// Longest `site.state`. It holds a few numbers, so a longer file is not one of ours.
const SIDE_BYTES_MAX: usize = 4096;

const SUM_BYTES: usize = 32;

/// The random bits of an incarnation: two starts from copies of one backup must not share an incarnation.
const RANDOM_BITS: u64 = 0xf_ffff;

/// The last millisecond, in the year 2248, that an incarnation can begin with: the highest bit stays free.
const TIME_MAX: u64 = (1 << 43) - 1;

/// The content of `site.state`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideState {
    /// [`STORE_FORMAT`] of the release that wrote the store.
    pub format: u32,
    /// No start may take an incarnation below this one.
    pub incarnation_floor: Incarnation,
    /// The site that the folder belongs to; `None` from releases before this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<SiteId>,
}

/// The site that starts on a data folder.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    /// The id of the configured key.
    pub site: SiteId,
    /// The site given with `--take-over`, whose key was replaced; `None` in an ordinary start.
    pub takes_over: Option<SiteId>,
}

/// The folder belongs to another site. Nothing was touched, and the operator decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OtherSite {
    /// The folder has another site's id. Without this check a cloned machine with its own key would publish the other
    /// site's usage a second time.
    #[error(
        "the data folder belongs to site {found}, and the configured key is that of site {own}; nothing was touched. \
         If the site's key was replaced, start the node once with `fairmesh run --take-over {found}`. If this machine \
         was cloned from that site's, give this node a data folder of its own"
    )]
    Other {
        /// The site that the folder belongs to.
        found: SiteId,
        /// The site of the configured key.
        own: SiteId,
    },
    /// The folder belongs to neither the configured key nor the site given with `--take-over`.
    #[error(
        "the data folder belongs to site {found}, and `--take-over` names site {given}; nothing was touched. Check \
         `data_dir`, and which key this folder was used with"
    )]
    NotGiven {
        /// The site that the folder belongs to.
        found: SiteId,
        /// The site given with `--take-over`.
        given: SiteId,
    },
    /// The folder has no id: it is new, or only releases before that field used it.
    #[error(
        "the data folder has no site's id, and `--take-over` names site {0}; nothing was counted. Check `data_dir`; \
         if an earlier release wrote the folder, start this release once with the old key"
    )]
    NoId(SiteId),
}

impl Owner {
    /// An ordinary start, which takes nothing over.
    pub fn new(site: SiteId) -> Self {
        Self {
            site,
            takes_over: None,
        }
    }

    /// Accepts a folder by the ids in `site.state` and in the store. A folder without an id is new or an earlier
    /// release's.
    ///
    /// # Errors
    /// The folder belongs to another site. Nothing was changed.
    pub fn check(&self, side: Option<SiteId>, store: Option<SiteId>) -> Result<(), OtherSite> {
        // Both ids: a crash or a loss may have left only one of them, or one from before a take-over.
        let mut found = [side, store].into_iter().flatten();
        found.try_for_each(|found| self.check_id(found))?;
        match self.takes_over {
            Some(given) if side.or(store).is_none() => Err(OtherSite::NoId(given)),
            _ => Ok(()),
        }
    }

    fn check_id(&self, found: SiteId) -> Result<(), OtherSite> {
        let own = self.site;
        match self.takes_over {
            _ if found == own => Ok(()),
            Some(given) if found == given => Ok(()),
            Some(given) => Err(OtherSite::NotGiven { found, given }),
            None => Err(OtherSite::Other { found, own }),
        }
    }
}

/// Why `site.state` was not accepted. The file is unchanged, and the node does not start.
#[derive(Debug, thiserror::Error)]
pub enum SideError {
    /// The content does not match its checksum: the disk changed it.
    #[error(
        "it is damaged: put it aside and start the node again; it will then take an incarnation \
         above all that its peers know of"
    )]
    Damaged,
    /// The content is whole, but not what this release writes.
    #[error("it is not understood: {0}")]
    Content(CborError),
    /// A newer release wrote it.
    #[error("it is of format {0}, and this release knows {STORE_FORMAT} at most")]
    Newer(u32),
    /// The first edition wrote it and the store.
    #[error("it is of format {0}. {FIRST_EDITION}")]
    Older(u32),
    /// The folder belongs to another site.
    #[error(transparent)]
    OtherSite(#[from] OtherSite),
}

impl SideState {
    /// Reads the content of `site.state`.
    ///
    /// # Errors
    /// A wrong checksum, another format, or bytes that this release does not write.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SideError> {
        let content = match bytes.split_first_chunk::<SUM_BYTES>() {
            Some((sum, content)) if sum == ContentHash::of(content).as_bytes() => content,
            _ => return Err(SideError::Damaged),
        };
        let state: Self = cbor::from_slice(content, SIDE_BYTES_MAX).map_err(SideError::Content)?;
        match state.format {
            newer if newer > STORE_FORMAT => Err(SideError::Newer(newer)),
            older if older < STORE_FORMAT => Err(SideError::Older(older)),
            _ => Ok(state),
        }
    }

    /// The content of `site.state`: checksum and CBOR.
    pub fn to_bytes(&self) -> Vec<u8> {
        let content = cbor::to_vec(self);
        [ContentHash::of(&content).as_bytes(), content.as_slice()].concat()
    }

    /// The operations that replace `site.state` atomically.
    fn save(&self) -> Vec<Op> {
        // The sync comes before the rename: otherwise a power failure could leave an empty file under the final name,
        // and the floor would be lost.
        let ops = vec![
            Op::Create(SIDE_NEW),
            Op::Write {
                file: SIDE_NEW,
                at: 0,
                bytes: self.to_bytes(),
            },
            Op::Sync(SIDE_NEW),
            Op::Rename {
                from: SIDE_NEW,
                to: SIDE,
            },
            Op::SyncNames,
        ];
        let is_kept = |op: &Op| !matches!(op, Op::Sync(_) | Op::SyncNames);
        mutant!(SideUnsynced, ops, ops.into_iter().filter(is_kept).collect())
    }
}

/// Takes an incarnation that no start of this site has used. `side` is the content of `site.state`, if it exists. The
/// operations save the next floor and must be done before the incarnation is used: a crash in between must not let the
/// next start take it again.
///
/// # Errors
/// `side` is damaged, of another format, or of another site. Nothing was changed.
pub fn take_incarnation(
    owner: Owner,
    side: Option<&[u8]>,
    now: WallTime,
    random: u64,
) -> Result<(Incarnation, Vec<Op>), SideError> {
    let side = side.map(SideState::from_bytes).transpose()?;
    let found = side.as_ref().and_then(|side| side.site);
    found.map_or(Ok(()), |found| owner.check_id(found))?;
    let floor = side.map_or(Incarnation(0), |side| side.incarnation_floor);
    let incarnation = choose_incarnation(now, random, floor);
    let state = SideState {
        format: STORE_FORMAT,
        incarnation_floor: Incarnation(incarnation.0.saturating_add(1)),
        site: Some(owner.site),
    };
    Ok((incarnation, mutant!(FloorUnsaved, state.save(), Vec::new())))
}

/// An incarnation at or above the floor. It begins with the time, so that even a site that has lost everything,
/// including `site.state`, comes after its earlier starts: a head covers only heads of earlier incarnations. If the
/// floor is ahead of the time (the clock was set back), the random bits are added to the floor: a restored backup and
/// the start after that backup know the same floor and must differ.
fn choose_incarnation(now: WallTime, random: u64, floor: Incarnation) -> Incarnation {
    let random = random & RANDOM_BITS;
    let by_time = (now.0.min(TIME_MAX) << RANDOM_BITS.count_ones()) | random;
    Incarnation(if by_time > floor.0 || mutated!(FloorIgnored) {
        by_time
    } else {
        floor.0.saturating_add(random)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_backup_never_takes_the_incarnation_of_the_start_that_it_forgot() {
        // Both start from the same floor, ahead of the clock, and differ in what they draw.
        let now = WallTime(100);
        let floor = choose_incarnation(now, 0xf_fff0, Incarnation(0));
        let forgotten = choose_incarnation(now, 0x1234, floor);
        let restored = choose_incarnation(now, 0x4321, floor);
        assert_ne!(forgotten, restored);
        assert!(forgotten >= floor && restored >= floor);
    }

    #[test]
    fn time_leads_where_it_can() {
        let floor = choose_incarnation(WallTime(100), 7, Incarnation(0));
        assert_eq!(
            choose_incarnation(WallTime(101), 9, floor),
            Incarnation((101 << 20) | 9)
        );
        let last = choose_incarnation(WallTime(u64::MAX), u64::MAX, floor);
        assert_eq!(last, Incarnation(u64::MAX >> 1));
    }

    #[test]
    fn a_site_that_lost_everything_comes_after_its_start_a_millisecond_before() {
        let before = choose_incarnation(WallTime(1_767_615_600_000), u64::MAX, Incarnation(0));
        let after = choose_incarnation(WallTime(1_767_615_600_001), 0, Incarnation(0));
        assert!(after > before);
    }

    #[test]
    fn a_state_that_is_flipped_cut_newer_or_older_is_refused() {
        let state = SideState {
            format: STORE_FORMAT,
            incarnation_floor: Incarnation(4),
            site: Some(SiteId::from_bytes([1; 32])),
        };
        let good = state.to_bytes();
        assert_eq!(SideState::from_bytes(&good).expect("is good"), state);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let flipped = SideState::from_bytes(&bad);
            assert!(matches!(flipped, Err(SideError::Damaged)), "byte {at}");
            let cut = SideState::from_bytes(&good[..at]);
            assert!(matches!(cut, Err(SideError::Damaged)), "cut at {at}");
        }
        let of_format = |format| {
            SideState::from_bytes(
                &SideState {
                    format,
                    ..state.clone()
                }
                .to_bytes(),
            )
        };
        assert!(matches!(of_format(3), Err(SideError::Newer(3))));
        assert!(matches!(of_format(1), Err(SideError::Older(1))));
    }

    #[test]
    fn a_folder_is_its_sites_and_of_the_key_that_takes_it_over_by_name() {
        let [old, new, else_] = [1, 2, 3].map(|byte| SiteId::from_bytes([byte; 32]));
        let taken_by = |site, takes_over, side: &[u8]| {
            let owner = Owner { site, takes_over };
            let taken = take_incarnation(owner, Some(side), WallTime(100), 7);
            taken.map(|(incarnation, _)| SideState {
                format: STORE_FORMAT,
                incarnation_floor: Incarnation(incarnation.0 + 1),
                site: Some(site),
            })
        };
        let refused = |site, takes_over, side: &[u8]| match taken_by(site, takes_over, side) {
            Err(SideError::OtherSite(error)) => error,
            taken => panic!("{taken:?}"),
        };
        let unnamed = SideState {
            format: STORE_FORMAT,
            incarnation_floor: Incarnation(4),
            site: None,
        };
        let of_old = taken_by(old, None, &unnamed.to_bytes()).expect("an earlier release's");
        let side = of_old.to_bytes();
        let (found, own) = (old, new);
        assert_eq!(refused(new, None, &side), OtherSite::Other { found, own });
        let given = else_;
        assert_eq!(
            refused(new, Some(else_), &side),
            OtherSite::NotGiven { found, given }
        );
        let of_new = taken_by(new, Some(old), &side).expect("it takes over");
        assert!(of_new.incarnation_floor > of_old.incarnation_floor);
        taken_by(new, Some(old), &of_new.to_bytes()).expect("a second time");
        taken_by(new, None, &of_new.to_bytes()).expect("and from then on");
        let own = old;
        let found = new;
        assert_eq!(
            refused(old, None, &of_new.to_bytes()),
            OtherSite::Other { found, own }
        );
    }

    #[test]
    fn the_store_names_the_site_too_and_nothing_is_taken_over_that_has_no_name() {
        let [old, new] = [1, 2].map(|byte| SiteId::from_bytes([byte; 32]));
        let (found, own) = (old, new);
        let other = Err(OtherSite::Other { found, own });
        assert_eq!(Owner::new(new).check(None, Some(old)), other);
        assert_eq!(Owner::new(new).check(Some(new), Some(old)), other);
        assert_eq!(Owner::new(new).check(None, None), Ok(()));
        let takes_over = Some(old);
        let taking = Owner {
            site: new,
            takes_over,
        };
        assert_eq!(taking.check(None, None), Err(OtherSite::NoId(old)));
        // The store was lost, or a crash came between the two.
        assert_eq!(taking.check(Some(old), None), Ok(()));
        assert_eq!(taking.check(Some(new), Some(old)), Ok(()));
    }
}
