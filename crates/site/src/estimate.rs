//! What a report would count, without counting it, here or at another site.
//!
//! Invariant: nothing changes; what it says is what [`handle`](crate::Site::handle) would do with the same record at
//! the same moment, but for records of one job that come together, of which each is judged alone.

use std::collections::BTreeMap;

use fairmesh_model::{Counters, Now, SiteId, UsageRecord, VoId, WallTime};

use crate::again::AfterCorrection;
use crate::config::Charging;
use crate::identity::{Account, IdentityMap};
use crate::instalments::settled;
use crate::parts::Parts;
use crate::store::{JobMark, job_key};

/// What one record would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Estimate {
    /// It says nothing new.
    Known,
    /// It was taken back as it is reported, at this moment, if that is known: it does not count again.
    TakenBack(Option<WallTime>),
    /// It would be refused, and why.
    Refused(String),
    /// It would be counted.
    Counted {
        /// The account; the root of the site's tree where no rule maps it.
        account: Account,
        /// Whether a rule maps it.
        mapped: bool,
        /// What would be added, and refunded of what instalments charged.
        counters: Counters,
        /// Whether some of it is too old to count.
        late: bool,
    },
}

impl Parts {
    /// What `record` would count beyond what `mark` says is charged already.
    pub fn estimate(&self, now: Now, record: &UsageRecord, mark: Option<JobMark>) -> Estimate {
        let account = self.shares.tree.view.account(record);
        let vo = account.as_ref().and_then(|account| account.vo);
        let (mark, is_known) = match self.job_terms().after_correction(record, mark) {
            AfterCorrection::Counted(told) => {
                let mark = self.own.mark_behind_loss(vo, record, told);
                (mark, mark == told)
            }
            AfterCorrection::Again(mark) => (mark, false),
            AfterCorrection::TakenBack(at) => return Estimate::TakenBack(at),
        };
        if mark.is_none_or(|mark| !mark.ended)
            && let Err(why) = self.terms().check_capacity(vo, record)
        {
            return Estimate::Refused(why);
        }
        let charging = &self.cx.config.charging;
        self.estimate_by(now, (record, account), (mark, is_known), charging)
    }

    /// What `site` charges for the jobs by what it has told the members of their VOs about its
    /// machines and queues, whatever is counted already. Whose jobs they are is decided here.
    pub fn estimate_at(
        &self,
        now: Now,
        records: impl Iterator<Item = UsageRecord>,
        site: SiteId,
    ) -> Vec<Estimate> {
        let mut told: BTreeMap<VoId, Option<Charging>> = BTreeMap::new();
        let mut estimate = |record: UsageRecord| {
            let refuse =
                |why: String| Estimate::Refused(format!("job `{}`: {why}", record.key.job));
            let account = self.shares.tree.view.account(&record);
            let Some(vo) = account.as_ref().and_then(|account| account.vo) else {
                let why = "its account belongs to no VO, so no site has published what it costs";
                return refuse(why.to_owned());
            };
            let charging = told
                .entry(vo)
                .or_insert_with(|| self.vos.charging_at(vo, site));
            match charging {
                Some(charging) => {
                    self.estimate_by(now, (&record, account), (None, false), charging)
                }
                None => refuse(format!(
                    "site {site} has published to VO {vo} nothing about its machines"
                )),
            }
        };
        records.map(&mut estimate).collect()
    }

    fn estimate_by(
        &self,
        now: Now,
        (record, account): (&UsageRecord, Option<Account>),
        (mark, is_known): (Option<JobMark>, bool),
        charging: &Charging,
    ) -> Estimate {
        if let Err(why) = self.terms().check(record) {
            return Estimate::Refused(why);
        }
        let mapped = account.is_some();
        let account = account.unwrap_or_else(IdentityMap::nowhere);
        let rules = self.terms().rules(account.vo, now.wall);
        let charge = match self
            .terms()
            .charge_of(record, mark, (account.vo, &rules), charging)
        {
            Ok(None) => return Estimate::Known,
            Err(why) => return Estimate::Refused(why),
            Ok(Some(charge)) => charge,
        };
        let known = mark.filter(|_| is_known);
        let key = job_key(&record.key);
        let by = (account.digest(), &rules);
        let (charge, refunds) = settled(
            self.jobs.instalments.get(&key),
            record,
            known,
            charge,
            by,
            charging,
        );
        let parts = charge.parts.iter();
        let refunds = Counters {
            refunds: refunds.iter().map(|(_, refund)| refund).sum(),
            ..Counters::default()
        };
        Estimate::Counted {
            account,
            mapped,
            counters: parts.fold(refunds, |sum, (_, part)| sum.plus(*part)),
            late: charge.late,
        }
    }
}
