//! Who may write on the control socket.
//!
//! Invariant: a user that the system does not know is never granted anything, and is reported.
//! Deliberately not here: asking a connection who it is (SO_PEERCRED).

use std::collections::BTreeSet;
use std::fmt;
use std::process::Command;

/// A user by name or number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writer {
    /// By name, looked up when the node starts and reloads.
    Name(String),
    /// By number.
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

/// The numbers of `writers`, and those whom the system does not know.
pub fn uids(writers: &[Writer]) -> (BTreeSet<u32>, Vec<String>) {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let (mut uids, mut unknown) = (BTreeSet::new(), Vec::new());
    for writer in writers {
        let uid = match writer {
            Writer::Uid(uid) => Some(*uid),
            Writer::Name(name) => uid_in(&passwd, name).or_else(|| uid_of_directory(name)),
        };
        match uid {
            Some(uid) => {
                uids.insert(uid);
            }
            None => unknown.push(writer.to_string()),
        }
    }
    (uids, unknown)
}

/// Users who are in no file but in LDAP or SSSD, as on most clusters: `getent` asks them all.
fn uid_of_directory(name: &str) -> Option<u32> {
    let answer = Command::new("getent")
        .args(["passwd", "--", name])
        .output()
        .ok()?;
    uid_in(&String::from_utf8(answer.stdout).ok()?, name)
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
    fn names_become_numbers_and_strangers_are_reported() {
        let writers = [
            Writer::Name("root".to_owned()),
            Writer::Uid(990),
            Writer::Name("nobody-of-this-name".to_owned()),
        ];
        let (uids, unknown) = uids(&writers);
        assert_eq!(uids, BTreeSet::from([0, 990]));
        assert_eq!(unknown, ["nobody-of-this-name"]);
        assert_eq!(uid_in("a:x:7:8::/:/bin/sh\nab:x:9:", "ab"), Some(9));
    }
}
