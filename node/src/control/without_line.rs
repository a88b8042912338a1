//! How much weighted usage belongs to accounts that have no line in the share tree, and to which accounts.
//!
//! Invariant: figures are those of the order that look-ups are answered from; an account is named only to a reader
//! who may see its usage. Deliberately not here: whether that is a fault (`doctor`).

use fairmesh_api::{AccountUsageBody, WithoutLineBody};
use fairmesh_fairshare::{Others, Snapshot, others};
use fairmesh_model::Share;

use crate::privacy::{PrivateData, Visibility};

/// Accounts of one level that an answer names.
const NAMED_MAX: usize = 5;

/// The levels where accounts without a line have used something, in path order.
pub(super) fn without_line(snapshot: &Snapshot, visibility: &Visibility) -> Vec<WithoutLineBody> {
    let level = |of: Others| {
        let part = match of.level_usage {
            0 => Share::ZERO,
            whole => share(of.usage, whole),
        };
        let accounts = of.accounts.len();
        let seen = of.accounts.into_iter();
        let seen = seen.filter(|(path, _)| visibility.sees_entry(PrivateData::Usage, path));
        let largest = seen.take(NAMED_MAX).map(|(path, usage)| AccountUsageBody {
            path: path.to_string(),
            usage_core_ms: usage.to_string(),
        });
        WithoutLineBody {
            has_line: of.has_line,
            usage_core_ms: of.usage.to_string(),
            of_level: part.to_string(),
            accounts,
            largest: largest.collect(),
            path: of.path.to_string(),
        }
    };
    others(snapshot).into_iter().map(level).collect()
}

/// `part / whole`, rounded down to seven decimals of a percent.
fn share(part: u128, whole: u128) -> Share {
    let shift = 128 - whole.leading_zeros().min(64) - 64;
    let narrow = |amount: u128| u64::try_from(amount >> shift).unwrap_or(u64::MAX);
    Share::from_ratio(narrow(part), narrow(whole))
}
