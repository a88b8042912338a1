//! Who may write on the node's sockets, and who sees everything.
//!
//! Invariant: a writer is root, the node's own user, or a user that the owner named; a user that the system cannot name
//! only reads.

use std::fmt;
use std::sync::Arc;

use rustix::process::geteuid;

use super::Privacy;
use crate::users::Uids;

/// What the owner's configuration grants to the users of this machine.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Users that may write, besides root and the node's own user.
    pub writers: Uids,
    /// Users that see everything that is hidden from others.
    pub readers: Uids,
    /// What is hidden from others.
    pub privacy: Arc<Privacy>,
}

impl Access {
    /// Whether the user may write. `None` is a user that the kernel does not name.
    pub(crate) fn may_write(&self, uid: Option<u32>) -> bool {
        self.may_write_on(geteuid().as_raw(), uid)
    }

    fn may_write_on(&self, own_uid: u32, uid: Option<u32>) -> bool {
        let is_named = |uid| self.writers.values().any(|writer| *writer == uid);
        uid.is_some_and(|uid| uid == 0 || uid == own_uid || is_named(uid))
    }

    /// Whether the user sees everything that is hidden from others.
    pub(crate) fn may_read_all(&self, uid: Option<u32>) -> bool {
        let is_named = |uid| self.readers.values().any(|reader| *reader == uid);
        uid.is_some_and(is_named) || self.may_write(uid)
    }
}

/// The access in force at each moment: a reload changes it.
#[derive(Clone)]
pub struct CurrentAccess(Arc<dyn Fn() -> Arc<Access> + Send + Sync>);

impl CurrentAccess {
    /// What `read` returns at the time of each question.
    pub fn new(read: impl Fn() -> Arc<Access> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(super) fn get(&self) -> Arc<Access> {
        (self.0)()
    }
}

impl fmt::Debug for CurrentAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentAccess")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::Writer;

    #[test]
    fn root_the_node_and_the_named_write_and_others_read() {
        let access = Access {
            writers: Uids::from([(Writer::Uid(990), 990)]),
            ..Access::default()
        };
        for (uid, expected) in [
            (Some(0), true),
            (Some(500), true),
            (Some(990), true),
            (Some(1000), false),
            (Some(u32::MAX), false),
            (None, false),
        ] {
            assert_eq!(access.may_write_on(500, uid), expected, "{uid:?}");
        }
    }
}
