//! Who may write on the control socket.
//!
//! Invariant: a user that the system does not know is never granted anything, and is reported.
//! Deliberately not here: asking a connection who it is (SO_PEERCRED).

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;

/// With this `getent` says that nobody has that name.
const NO_SUCH_USER: i32 = 2;

/// A user by name or number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writer {
    /// By name, looked up when the node starts and reloads.
    Name(String),
    /// A user id, given as a number.
    Uid(u32),
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Uid(uid) => uid.fmt(f),
        }
    }
}

/// The numbers of `writers`, and those whom the system does not know. Of whom it cannot tell now, a directory being
/// away, is what was `known` before. Waits for the directory.
pub fn uids(writers: &[Writer], known: &Uids) -> (Uids, Vec<String>) {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    uids_by(writers, known, |name| match uid_in(&passwd, name) {
        Some(uid) => Ok(Some(uid)),
        None => uid_of_directory(name),
    })
}

/// The numbers of writers.
pub type Uids = BTreeMap<Writer, u32>;

/// A directory that does not answer.
struct Away;

fn uids_by(
    writers: &[Writer],
    known: &Uids,
    mut uid_of: impl FnMut(&str) -> Result<Option<u32>, Away>,
) -> (Uids, Vec<String>) {
    let (mut uids, mut unknown) = (Uids::new(), Vec::new());
    let mut is_away = false;
    for writer in writers {
        let uid = match writer {
            Writer::Uid(uid) => Some(*uid),
            // One that has not answered in time is not waited for again.
            Writer::Name(_) if is_away => known.get(writer).copied(),
            Writer::Name(name) => uid_of(name).unwrap_or_else(|Away| {
                is_away = true;
                known.get(writer).copied()
            }),
        };
        match uid {
            Some(uid) => drop(uids.insert(writer.clone(), uid)),
            None => unknown.push(writer.to_string()),
        }
    }
    (uids, unknown)
}

/// The name of a user, if the system knows it. Waits for its directory.
pub fn name_of(uid: u32) -> Option<String> {
    let answer = getent(&uid.to_string()).ok()?;
    let mut fields = answer.split(':');
    let name = fields.next()?.to_owned();
    (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
}

/// Users who are in no file but in LDAP or SSSD, as on most clusters: `getent` asks them all.
fn uid_of_directory(name: &str) -> Result<Option<u32>, Away> {
    Ok(uid_in(&getent(name)?, name))
}

/// The line of a user, by name or number; nothing of one who is nobody.
fn getent(user: &str) -> Result<String, Away> {
    let mut getent = Command::new("timeout");
    getent.args(["--kill-after=1", "5", "getent", "passwd", "--", user]);
    let answer = getent.output().map_err(|_| Away)?;
    match answer.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&answer.stdout).into_owned()),
        Some(NO_SUCH_USER) => Ok(String::new()),
        _ => Err(Away),
    }
}

fn uid_in(passwd: &str, name: &str) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_known_stays_so_while_the_directory_is_away() {
        let writers = ["ann", "bob"].map(|name| Writer::Name(name.to_owned()));
        let (known, _) = uids_by(&writers, &Uids::new(), |name| {
            Ok((name == "ann").then_some(7))
        });
        let mut asked = 0;
        let (uids, unknown) = uids_by(&writers, &known, |_| {
            asked += 1;
            Err(Away)
        });
        assert_eq!((uids, asked), (known.clone(), 1), "it is waited for once");
        assert_eq!(unknown, ["bob"]);
        let (uids, _) = uids_by(&writers, &known, |_| Ok(None));
        assert_eq!(uids, Uids::new(), "who is gone is gone");
    }

    #[test]
    fn names_become_numbers_and_strangers_are_reported() {
        let writers = [
            Writer::Name("root".to_owned()),
            Writer::Uid(990),
            Writer::Name("nobody-of-this-name".to_owned()),
        ];
        let (uids, unknown) = uids(&writers, &Uids::new());
        assert_eq!(uids.into_values().collect::<Vec<_>>(), [0, 990]);
        assert_eq!(unknown, ["nobody-of-this-name"]);
        assert_eq!(name_of(0).as_deref(), Some("root"));
        assert_eq!(name_of(u32::MAX - 7), None);
        assert_eq!(uid_in("a:x:7:8::/:/bin/sh\nab:x:9:", "ab"), Some(9));
    }
}
