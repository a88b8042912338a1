//! Account paths: names in a share tree, from the root down.
//!
//! Invariant: an `AccountPath` is `/` or `/` followed by 1 to [`PATH_DEPTH_MAX`] names joined by
//! `/`; no name is empty, `.` or `..`, or holds a character that is not visible, and the whole is at most
//! [`PATH_BYTES_MAX`] bytes of UTF-8. Two equal paths are equal byte for byte (no normalisation).

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::visible::is_visible;

/// Longest path in bytes: bounds a batch's path table. Grid identities (a certificate's subject
/// as a leaf) reach about 200 bytes; longer ones are refused by name instead of cut.
pub const PATH_BYTES_MAX: usize = 512;

/// Deepest path: bounds the work of one look-up. VO, project, group and user need four; delegation
/// in the FSGrid paper reaches five.
pub const PATH_DEPTH_MAX: usize = 16;

/// The name that stands for all accounts of a level that have no line in the share tree.
pub const OTHERS: &str = "*";

/// An absolute name in a share tree, such as `/P-B1/U-B11`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AccountPath(Arc<str>);

/// Why a path was refused. State is unchanged; the text is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The text does not begin with `/`.
    #[error("account path `{0}` does not begin with `/`")]
    NotAbsolute(String),
    /// A name between two slashes is empty, `.` or `..`, or has a character that is not visible.
    #[error("account path `{0}` has an empty or forbidden name")]
    BadName(String),
    /// More than [`PATH_BYTES_MAX`] bytes.
    #[error("account path of {0} bytes is longer than {PATH_BYTES_MAX}")]
    TooLong(usize),
    /// More than [`PATH_DEPTH_MAX`] levels.
    #[error("account path `{0}` is deeper than {PATH_DEPTH_MAX} levels")]
    TooDeep(String),
}

impl AccountPath {
    /// The root path, `/`.
    pub fn root() -> Self {
        Self(Arc::from("/"))
    }

    /// Checks and takes a path.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        Self::check(text)?;
        Ok(Self(Arc::from(text)))
    }

    /// Whether `text` is a path; says what is wrong where it is not.
    pub fn check(text: &str) -> Result<(), PathError> {
        if text.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong(text.len()));
        }
        let Some(names) = text.strip_prefix('/') else {
            return Err(PathError::NotAbsolute(text.to_owned()));
        };
        if names.is_empty() {
            return Ok(());
        }
        let mut depth = 0;
        for name in names.split('/') {
            depth += 1;
            if name.is_empty() || name == "." || name == ".." || !name.chars().all(is_visible) {
                return Err(PathError::BadName(text.escape_debug().to_string()));
            }
        }
        if depth > PATH_DEPTH_MAX {
            return Err(PathError::TooDeep(text.to_owned()));
        }
        Ok(())
    }

    /// The text, with its leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names from the root down; none for the root itself.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// How many levels below the root.
    pub fn depth(&self) -> usize {
        match self.is_root() {
            true => 0,
            false => self.0.bytes().filter(|byte| *byte == b'/').count(),
        }
    }

    /// Whether this is `/`.
    pub fn is_root(&self) -> bool {
        &*self.0 == "/"
    }

    /// The last name; `None` for the root.
    pub fn name(&self) -> Option<&str> {
        self.names().next_back()
    }

    /// The path one level up; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        self.parent_str().map(|parent| Self(Arc::from(parent)))
    }

    /// The text of the path one level up, without making one; `None` for the root.
    pub fn parent_str(&self) -> Option<&str> {
        let cut = self.0.rfind('/').expect("a path holds a slash");
        (!self.is_root()).then(|| &self.0[..cut.max(1)])
    }

    /// The path of `name` below this one.
    pub fn child(&self, name: &str) -> Result<Self, PathError> {
        if name.contains('/') {
            return Err(PathError::BadName(name.to_owned()));
        }
        self.join(&Self::parse(&format!("/{name}"))?)
    }

    /// `below`, read as a path below this one: the place of a VO's entry under its mount.
    pub fn join(&self, below: &Self) -> Result<Self, PathError> {
        if below.is_root() {
            return Ok(self.clone());
        }
        if self.is_root() {
            return Ok(below.clone());
        }
        // Both have been checked: only their sum may be too much.
        let text = [&*self.0, &*below.0].concat();
        if text.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong(text.len()));
        }
        if self.depth() + below.depth() > PATH_DEPTH_MAX {
            return Err(PathError::TooDeep(text));
        }
        Ok(Self(text.into()))
    }

    /// Whether this path is `ancestor` or lies below it.
    pub fn starts_with(&self, ancestor: &Self) -> bool {
        ancestor.is_root()
            || self
                .0
                .strip_prefix(&*ancestor.0)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// This path as seen from `ancestor`; `None` where it does not lie there.
    pub fn relative_to(&self, ancestor: &Self) -> Option<Self> {
        if ancestor.is_root() {
            return Some(self.clone());
        }
        match self.0.strip_prefix(&*ancestor.0)? {
            "" => Some(Self::root()),
            rest if rest.starts_with('/') => Some(Self(Arc::from(rest))),
            _ => None,
        }
    }

    /// Whether this is the entry of all accounts without a line, such as `/cms/*`.
    pub fn is_others(&self) -> bool {
        self.0.ends_with("/*")
    }

    /// The entry of all accounts below this one that have no line; `None` where it would be too long or deep.
    pub fn others(&self) -> Option<Self> {
        self.child(OTHERS).ok()
    }

    /// This path and its ancestors, deepest first, the root last.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self.clone()), Self::parent)
    }
}

impl Borrow<str> for AccountPath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AccountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl FromStr for AccountPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for AccountPath {
    type Error = PathError;

    fn try_from(text: String) -> Result<Self, PathError> {
        Self::parse(&text)
    }
}

impl From<AccountPath> for String {
    fn from(path: AccountPath) -> Self {
        path.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AccountPath {
        AccountPath::parse(text).expect("a valid path")
    }

    #[test]
    fn only_absolute_paths_of_clean_names_are_taken() {
        for bad in [
            "",
            "a",
            "//",
            "/a/",
            "/a//b",
            "/..",
            "/a/./b",
            "/a\nb",
            "/a\u{202e}b",
            "/a\u{200b}",
        ] {
            assert!(AccountPath::parse(bad).is_err(), "{bad:?} was taken");
        }
        assert!(AccountPath::parse(&format!("/{}", "x".repeat(PATH_BYTES_MAX))).is_err());
        assert!(AccountPath::parse(&"/x".repeat(PATH_DEPTH_MAX + 1)).is_err());
        assert_eq!(path("/").depth(), 0);
        assert_eq!(
            path("/VO-A/P-A1").names().collect::<Vec<_>>(),
            ["VO-A", "P-A1"]
        );
    }

    #[test]
    fn joining_and_cutting_are_inverse() {
        let mount = path("/VO-B");
        let entry = path("/P-B1/U-B11");
        let full = mount.join(&entry).expect("short enough");
        assert_eq!(full, path("/VO-B/P-B1/U-B11"));
        assert_eq!(full.relative_to(&mount), Some(entry));
        assert_eq!(path("/VO-BB").relative_to(&mount), None);
        assert!(!path("/VO-BB").starts_with(&mount));
        assert_eq!(mount.relative_to(&mount), Some(AccountPath::root()));
        assert_eq!(path("/a").parent(), Some(AccountPath::root()));
        assert_eq!(path("/a/b").parent_str(), Some("/a"));
        assert_eq!(path("/").parent_str(), None);
        let deep = path(&"/x".repeat(PATH_DEPTH_MAX));
        assert_eq!(deep.depth(), PATH_DEPTH_MAX);
        assert!(matches!(deep.join(&mount), Err(PathError::TooDeep(_))));
        let long = path(&format!("/{}", "x".repeat(PATH_BYTES_MAX - 1)));
        assert!(matches!(mount.join(&long), Err(PathError::TooLong(_))));
    }
}
