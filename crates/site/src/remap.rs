//! Usage that today's identity rules map to another account: which, and from where to where.
//!
//! A rule that was wrong or missing has charged jobs to the wrong account. The record log has their records, and each
//! job's mark says whom it was charged to. A [`Remapper`] compares both with the rules in force, beside the site, on
//! copies of what it needs. What it finds is gathered in a [`Remap`], which the site takes as one change (`apply`).
//!
//! Invariants: a job moves only from the account that its mark names, and its new mark names the other account, so it
//! moves at most once; what was charged is credited in the cells that it was charged in, and charged anew by the
//! charter of its new account (for the site's own accounts by the owner's rule). Deliberately not here: reading the
//! record log (the node).

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_model::{
    AccountPath, Counters, MemberSite, Now, Origin, Span, UsageRecord, VoId, WallTime,
};

use crate::again::JobTerms;
use crate::charge::{Rules, charge};
use crate::config::SiteConfig;
use crate::identity::{Account, IdentityMap};
use crate::own::OfSpan;
use crate::refund::{as_charged, parts_of};
use crate::remap::change::{Fate, Move, Remap};
use crate::store::{JobMark, job_key};
use crate::terms::check_member;
use cover::{Cover, Uncovered};

pub(crate) mod apply;
pub(crate) mod change;
pub(crate) mod cover;

/// What usage of a VO, or of the site's own accounts, is counted under.
#[derive(Debug)]
struct Terms {
    rules: Rules,
    member: Option<MemberSite>,
    is_founded: bool,
}

/// What identity rules read of a job: its origin, queue and quality of service.
type JobWords = (Origin, Option<String>, Option<String>);

/// Compares jobs with the rules in force. Made by the site, used beside it.
#[derive(Debug)]
pub struct Remapper {
    config: Arc<SiteConfig>,
    terms: BTreeMap<Option<VoId>, Terms>,
    cells: BTreeMap<Option<VoId>, BTreeMap<Span, OfSpan>>,
    /// The accounts that anything is charged to, by their digests.
    payers: BTreeMap<u64, Account>,
    mapped: BTreeMap<JobWords, (Account, bool)>,
    state: u64,
    since: WallTime,
    cover: Cover,
}

impl Remapper {
    /// What compares jobs that ended at or after `since` with the rules in force.
    pub(crate) fn new(of: &JobTerms<'_>, now: Now, since: WallTime) -> Self {
        let vos = of.terms.vos.keys().copied().map(Some).chain([None]);
        let terms = |vo: Option<VoId>| {
            let charter = vo.and_then(|vo| of.terms.vos.get(&vo)?.charter());
            let terms = Terms {
                rules: of.terms.rules(vo, now.wall),
                member: charter.and_then(|charter| charter.member(of.terms.cx.id).cloned()),
                is_founded: vo.is_none() || charter.is_some(),
            };
            (vo, terms)
        };
        Self {
            config: Arc::clone(&of.terms.cx.config),
            cells: vos.clone().map(|vo| (vo, of.own.shared(vo))).collect(),
            terms: vos.map(terms).collect(),
            payers: BTreeMap::new(),
            mapped: BTreeMap::new(),
            state: of.jobs.marks_moved,
            since,
            cover: Cover::default(),
        }
    }

    /// Lists the accounts and what they have used since. Takes as long as there are counters.
    pub fn index(&mut self) {
        for (vo, spans) in std::mem::take(&mut self.cells) {
            let window = self.terms[&vo].rules.window;
            for (span, of_span) in spans {
                let counts = span.start(window) >= self.since;
                let mut sums: BTreeMap<&AccountPath, Counters> = BTreeMap::new();
                for ((path, _), counters) in of_span.iter() {
                    let sum = sums.entry(path).or_default();
                    *sum = sum.plus(*counters);
                }
                for (path, sum) in sums {
                    let path = path.clone();
                    let account = Account { vo, path };
                    if counts {
                        self.cover
                            .add_counted(&account, span.day(window), sum.net());
                    }
                    self.payers.insert(account.digest(), account);
                }
            }
        }
    }

    /// What becomes of the job of a record of the log whose mark is this. `logged` is the account that the log has.
    pub fn judge(
        &mut self,
        record: &UsageRecord,
        mark: Option<JobMark>,
        logged: Option<&Account>,
    ) -> Fate {
        match self.try_to_judge(record, mark, logged) {
            Ok(fate) => fate,
            Err(why) => Fate::Left(why),
        }
    }

    /// What the counters have and no job of the log that was judged.
    pub fn uncovered(&self) -> Vec<Uncovered> {
        self.cover.uncovered()
    }

    /// The beginning of a change, by whom, and why.
    pub fn change(&self, by: &str, why: &str) -> Remap {
        Remap {
            by: by.to_owned(),
            why: why.to_owned(),
            state: self.state,
            ..Remap::default()
        }
    }

    /// The site has taken the change that was begun last: the next one is made of what it made of the marks.
    pub fn applied(&mut self) {
        self.state += 1;
    }

    /// The account that a job maps to, and whether a rule says so.
    pub fn account_of(&mut self, record: &UsageRecord) -> (Account, bool) {
        let placement = &record.placement;
        let words = (
            record.origin.clone(),
            placement.queue.clone(),
            placement.qos.clone(),
        );
        if let Some(known) = self.mapped.get(&words) {
            return known.clone();
        }
        let mapped = self.config.identity.resolve(record);
        let is_mapped = mapped.is_some();
        let account = (mapped.unwrap_or_else(IdentityMap::nowhere), is_mapped);
        self.mapped.insert(words, account.clone());
        account
    }

    fn try_to_judge(
        &mut self,
        record: &UsageRecord,
        mark: Option<JobMark>,
        logged: Option<&Account>,
    ) -> Result<Fate, String> {
        record.validate().map_err(|error| error.to_string())?;
        let (to, is_mapped) = self.account_of(record);
        let Some(mark) = mark else {
            let days = self.terms.values().map(|terms| terms.rules.horizon);
            let is_past = days.min().is_some_and(|horizon| record.end <= horizon);
            return match is_past {
                true => Ok(Fate::Past),
                false => Err(NO_MARK.to_owned()),
            };
        };
        if mark.corrected {
            return Ok(Fate::Stays);
        }
        let from = self.payer(mark, &to, logged)?;
        let from_terms = self.terms.get(&from.vo).ok_or(LEFT_VO)?;
        if !from_terms.is_founded {
            return Err(NO_CHARTER.to_owned());
        }
        let rules = from_terms.rules;
        let charged = parts_of((record, mark), &rules, &self.config.charging);
        let charged = charged.into_iter().filter(|(_, part)| part.charge > 0);
        let counted = charged.filter(|(span, _)| span.end(rules.window) > rules.horizon);
        let credit: Vec<(Span, u64)> = counted.map(|(span, part)| (span, part.charge)).collect();
        let later = |(span, _): &&(Span, u64)| span.start(rules.window) >= self.since;
        for (span, charge) in credit.iter().filter(later) {
            self.cover
                .add_logged(&from, span.day(rules.window), *charge);
        }
        if from == to {
            return Ok(Fate::Stays);
        }
        if !mark.ended || record.running {
            return Err(RUNS.to_owned());
        }
        if record.start >= mark.charged_until || record.end > mark.charged_until {
            return Err(OTHER_RECORD.to_owned());
        }
        let (parts, charged) = self.charge_anew(&as_charged(record, mark), &to)?;
        if credit.is_empty() && parts.is_empty() {
            return Ok(Fate::Past);
        }
        Ok(Fate::Moves(Box::new(Move {
            key: job_key(&record.key),
            origin: record.origin.clone(),
            end: record.end,
            mark: JobMark {
                payer: to.digest(),
                charge: charged,
                ..mark
            },
            from,
            to,
            is_unmapped: !is_mapped,
            credit,
            parts,
        })))
    }

    /// What a job is charged in its new account, and all that goes into its mark.
    fn charge_anew(
        &self,
        record: &UsageRecord,
        to: &Account,
    ) -> Result<(Vec<(Span, Counters)>, u64), String> {
        let terms = self.terms.get(&to.vo).ok_or(LEFT_VO)?;
        if !terms.is_founded {
            return Err(NO_CHARTER.to_owned());
        }
        if let Some(member) = &terms.member
            && check_member(member, record).is_err()
        {
            return Err(TOO_LARGE.to_owned());
        }
        let charged = charge(record, None, &terms.rules, &self.config.charging);
        let charged = charged.map_err(|error| error.to_string())?;
        let charged = charged.ok_or(OTHER_RECORD)?;
        Ok((charged.parts, charged.mark.charge))
    }

    /// The account that a job was charged to.
    fn payer(
        &self,
        mark: JobMark,
        mapped: &Account,
        logged: Option<&Account>,
    ) -> Result<Account, String> {
        if mark.payer == 0 {
            return Err(SEVERAL.to_owned());
        }
        let known = self.payers.get(&mark.payer);
        let nowhere = IdentityMap::nowhere();
        let all = known.into_iter().chain([mapped, &nowhere]).chain(logged);
        let mut all = all.filter(|account| account.digest() == mark.payer);
        all.next().cloned().ok_or_else(|| UNKNOWN.to_owned())
    }
}

/// Why jobs stay where they are.
const NO_MARK: &str =
    "no mark here: they were not counted, or their marks were lost with a data folder";
const SEVERAL: &str = "charged to more than one account, as the rules changed while they ran";
const UNKNOWN: &str = "charged to an account of which nothing is counted any more";
const RUNS: &str = "not ended yet: they move when their last record has come";
const OTHER_RECORD: &str = "the record in the log is not the one that was counted";
const LEFT_VO: &str = "of a VO that the configuration does not name any more";
const NO_CHARTER: &str = "of a VO whose charter has not arrived yet";
const TOO_LARGE: &str = "larger than this site by the charter of the VO that they map to";
