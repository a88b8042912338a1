//! The people map: one row for each person, by local user, by Grid identity, or by both.
//!
//! Invariant: no user and no Grid identity stands in two rows, so a job is of one person at the most. Where a job has
//! both words and they are of two people, the Grid identity decides: a local user may be a pool that many people share.
//! Deliberately not here: reading the file (the node's configuration).

use fairmesh_model::mutant;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::words::{Account, Words};

/// The names of one person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The person's local user name.
    pub user: Option<Arc<str>>,
    /// The person's Grid identity.
    pub subject: Option<Arc<str>>,
    /// Who pays for their jobs.
    pub account: Account,
}

/// A word of a row that an earlier row has. The row was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The column of the list, `user` or `subject`.
    pub column: &'static str,
    /// Place of the earlier row, from 0.
    pub by: usize,
}

/// All people of a map.
#[derive(Debug, Clone, Default)]
pub struct People {
    rows: Vec<Person>,
    by_user: BTreeMap<Arc<str>, usize>,
    by_subject: BTreeMap<Arc<str>, usize>,
    by_account: BTreeMap<Account, Vec<usize>>,
}

impl PartialEq for People {
    fn eq(&self, other: &Self) -> bool {
        // All else follows from the rows.
        self.rows == other.rows
    }
}

impl Eq for People {}

impl People {
    /// Takes a row.
    ///
    /// # Errors
    /// Where an earlier row has its user or Grid identity.
    pub fn insert(&mut self, person: Person) -> Result<(), Taken> {
        let columns = [
            ("user", &person.user, &mut self.by_user),
            ("subject", &person.subject, &mut self.by_subject),
        ];
        for (column, word, known) in &columns {
            if let Some(by) = word.as_ref().and_then(|word| known.get(word)) {
                return Err(Taken { column, by: *by });
            }
        }
        let place = self.rows.len();
        for (_, word, known) in columns {
            if let Some(word) = word {
                known.insert(Arc::clone(word), place);
            }
        }
        let at_account = self.by_account.entry(person.account.clone()).or_default();
        at_account.push(place);
        self.rows.push(person);
        Ok(())
    }

    /// The rows, in their order.
    pub fn rows(&self) -> &[Person] {
        &self.rows
    }

    /// The person that a job is of.
    pub(super) fn find(&self, words: Words<'_>) -> Option<&Person> {
        let by_subject = words.subject.and_then(|word| self.by_subject.get(word));
        let by_user = words.user.and_then(|word| self.by_user.get(word));
        let found = mutant!(
            UserBeforeSubject,
            by_subject.or(by_user),
            by_user.or(by_subject)
        );
        found.map(|place| &self.rows[*place])
    }

    /// The person of a local user.
    pub(super) fn of_user(&self, user: &str) -> Option<&Person> {
        self.by_user.get(user).map(|place| &self.rows[*place])
    }

    /// Everybody whose jobs an account pays for.
    pub(super) fn at<'a>(&'a self, account: &Account) -> impl Iterator<Item = &'a Person> {
        let places = self.by_account.get(account).into_iter().flatten();
        places.map(|place| &self.rows[*place])
    }
}
