//! How important a job is to its own user: the last digit of its priority.
//!
//! Sources, the first that says something: the word `fairmesh:importance=150` in the job's comment, then
//! its nice. `sbatch --nice` alone is a nice of 100, which is importance 0; so a nice from −100 to 100 and
//! an importance from 200 to 0 are one scale, and users who may not go below nice 0 write the comment.
//!
//! Invariant: an importance is 0 to [`Importance::MAX`]; what a comment says badly counts as not said.
//! Deliberately not here: what the digit stands behind (`fairmesh-fairshare`), what it comes to in a
//! scheduler's points (`fairmesh-client`), and its fee, which goes by the same number.

use serde::{Deserialize, Serialize};

/// From 0 to 200; 100 where nobody says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Importance(u8);

/// An importance above [`Importance::MAX`]. Its author is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an importance of {0} is above {max}", max = Importance::MAX.get())]
pub struct ImportanceError(u8);

/// What the word of a comment begins with. Slurm's comment is one text for all who use it, so it has a prefix.
const WORD: &str = "fairmesh:importance=";

impl Importance {
    /// The lowest importance, 0.
    pub const MIN: Self = Self(0);
    /// Most important a user can call one of his jobs.
    pub const MAX: Self = Self(200);

    /// The importance, 0 to 200.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// What a comment says, in the first of its words that says it well. Words end at white space, `,` or `;`.
    pub fn in_comment(comment: &str) -> Option<Self> {
        let ends = |c: char| c.is_whitespace() || matches!(c, ',' | ';');
        // The word is looked for as a whole: schedulers ask under their locks, and comments may be long.
        comment.match_indices(WORD).find_map(|(at, _)| {
            let begins = comment[..at].chars().next_back().is_none_or(ends);
            let digits = comment[at + WORD.len()..].split(ends).next()?;
            let is_number = begins && digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = digits.parse::<u8>().ok().filter(|_| is_number)?;
            Self::try_from(number).ok()
        })
    }

    /// What a nice comes to: 100 less it, from 0 to 200.
    pub fn of_nice(nice: i64) -> Self {
        let number = i64::from(Self::default().0).saturating_sub(nice);
        let number = number.clamp(0, i64::from(Self::MAX.0));
        u8::try_from(number).map_or(Self::MAX, Self)
    }

    /// The nice that comes to it, −100 to 100.
    pub fn nice(self) -> i64 {
        i64::from(Self::default().0) - i64::from(self.0)
    }
}

impl Default for Importance {
    fn default() -> Self {
        Self(100)
    }
}

impl TryFrom<u8> for Importance {
    type Error = ImportanceError;

    fn try_from(number: u8) -> Result<Self, ImportanceError> {
        if number > Self::MAX.0 {
            return Err(ImportanceError(number));
        }
        Ok(Self(number))
    }
}

impl From<Importance> for u8 {
    fn from(importance: Importance) -> Self {
        importance.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_say_it_in_one_word() {
        for (comment, expected) in [
            ("fairmesh:importance=150", Some(150)),
            ("see ticket 7; fairmesh:importance=0", Some(0)),
            ("a,fairmesh:importance=200,b", Some(200)),
            ("a\nfairmesh:importance=007\tb", Some(7)),
            (
                "fairmesh:importance=201 fairmesh:importance=1 fairmesh:importance=2",
                Some(1),
            ),
            ("fairmesh:importance=", None),
            ("fairmesh:importance=-1", None),
            ("fairmesh:importance=+1", None),
            ("fairmesh:importance=1.5", None),
            ("fairmesh:importance=256", None),
            ("xfairmesh:importance=5", None),
            ("importance=5", None),
            ("", None),
        ] {
            let found = Importance::in_comment(comment).map(Importance::get);
            assert_eq!(found, expected, "{comment}");
        }
    }

    #[test]
    fn a_nice_is_the_same_scale_upside_down() {
        for (nice, expected) in [
            (0, 100),
            (100, 0),
            (-100, 200),
            (7, 93),
            (i64::MAX, 0),
            (i64::MIN, 200),
        ] {
            assert_eq!(Importance::of_nice(nice).get(), expected, "{nice}");
        }
        for number in 0..=200 {
            let importance = Importance::try_from(number).expect("in range");
            assert_eq!(Importance::of_nice(importance.nice()), importance);
        }
        assert_eq!(Importance::try_from(201), Err(ImportanceError(201)));
    }
}
