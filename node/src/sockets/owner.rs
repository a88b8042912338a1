//! Whose connection it is: one person may have many users.
//!
//! With `unshare --map-auto` anybody becomes any of the 65,536 users that `/etc/subuid` gives him, and the
//! kernel names those. They count as one. (That they are his who is named beside the range is not asked: names
//! are a directory's to resolve, which may take its time; so he counts once as himself and once as them.)

use std::fs;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::SystemTime;

/// Where the ranges are: see subuid(5).
const FILE: &str = "/etc/subuid";

/// One who has connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// A user of the machine.
    User(u32),
    /// Whoever may use the range of users that begins with this one.
    Range(u32),
    /// Users whom the system does not name, together.
    Unknown,
}

/// The ranges of the file.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    read: Mutex<Read>,
}

/// The file as it was when somebody came last.
#[derive(Debug, Default)]
struct Read {
    changed: Option<SystemTime>,
    /// The first user of each range, and how many there are.
    ranges: Vec<(u32, u32)>,
}

impl Ranges {
    /// Whom a connection of `uid` belongs to.
    pub(super) fn owner(&self, uid: Option<u32>) -> Owner {
        let Some(uid) = uid else {
            return Owner::Unknown;
        };
        let changed = fs::metadata(FILE).and_then(|metadata| metadata.modified());
        let changed = changed.ok();
        let lock = || self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = lock().changed == changed;
        if !is_known {
            // Not under the lock; two who come at once read the same.
            let ranges = parse(&fs::read_to_string(FILE).unwrap_or_default());
            *lock() = Read { changed, ranges };
        }
        owner_in(&lock().ranges, uid)
    }
}

fn owner_in(ranges: &[(u32, u32)], uid: u32) -> Owner {
    let range = ranges
        .iter()
        .find(|(first, count)| uid.checked_sub(*first).is_some_and(|at| at < *count));
    range.map_or(Owner::User(uid), |(first, _)| Owner::Range(*first))
}

/// Lines `name:first:count`; what is no such line grants nobody anything, here or in the system.
fn parse(text: &str) -> Vec<(u32, u32)> {
    let range = |line: &str| {
        let (rest, count) = line.rsplit_once(':')?;
        let (_name, first) = rest.rsplit_once(':')?;
        Some((first.parse().ok()?, count.trim_end().parse().ok()?))
    };
    text.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_users_of_a_range_are_one() {
        let ranges =
            parse("ann:100000:65536\n# none\n1001:165536:65536\nodd:x:1\nlast:4294967295:9");
        let owners = [99_999, 100_000, 165_535, 165_536, 231_072, u32::MAX];
        assert_eq!(
            owners.map(|uid| owner_in(&ranges, uid)),
            [
                Owner::User(99_999),
                Owner::Range(100_000),
                Owner::Range(100_000),
                Owner::Range(165_536),
                Owner::User(231_072),
                Owner::Range(u32::MAX),
            ]
        );
        assert_eq!(Ranges::default().owner(None), Owner::Unknown);
    }
}
