//! What a report would count, without counting it.
//!
//! Invariant: nothing changes; what it says is what [`Site::handle`] would do with the same record at
//! the same moment, but for records of one job that come together, of which each is judged alone.

use fairmesh_model::{Counters, Now, UsageRecord};

use crate::charge::charge;
use crate::identity::{Account, IdentityMap};
use crate::site::Site;
use crate::store::JobMark;

/// What one record would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Estimate {
    /// It says nothing new.
    Known,
    /// It would be refused, and why.
    Refused(String),
    /// It would be counted.
    Counted {
        /// The account; the root of the site's tree where no rule maps it.
        account: Account,
        /// Whether a rule maps it.
        mapped: bool,
        /// What would be added.
        counters: Counters,
        /// Whether some of it is too old to count.
        late: bool,
    },
}

impl Site {
    /// What `record` would count beyond what `mark` says is charged already.
    pub fn estimate(&self, now: Now, record: &UsageRecord, mark: Option<JobMark>) -> Estimate {
        if let Err(why) = self.check(record) {
            return Estimate::Refused(why);
        }
        let account = self.view().account(&record.origin);
        let mapped = account.is_some();
        let account = account.unwrap_or_else(IdentityMap::nowhere);
        let rules = self.rules(account.vo, now.wall);
        let unfounded = account.vo.filter(|vo| !self.is_founded(*vo));
        let charged = charge(record, mark, &rules, &self.config.charging);
        let charge = match (charged, unfounded) {
            (Ok(None), _) => return Estimate::Known,
            (_, Some(vo)) => return Estimate::Refused(crate::ingest::no_charter(vo)),
            (Err(why), None) => {
                return Estimate::Refused(format!("job `{}`: {why}", record.key.job));
            }
            (Ok(Some(charge)), None) => charge,
        };
        let parts = charge.parts.iter();
        Estimate::Counted {
            account,
            mapped,
            counters: parts.fold(Counters::default(), |sum, (_, part)| sum.plus(*part)),
            late: charge.late,
        }
    }
}
