//! What a valid configuration says that its owner can hardly mean.
//!
//! Invariant: only what the file and its share tree show; the same file is judged alike on every machine.
//! Deliberately not here: what makes a configuration invalid (`sections`), and what the machine lacks
//! (`check-config`).

use std::collections::BTreeSet;

use fairmesh_api::finding::{Code, Finding};
use fairmesh_model::{Factor, HistoryRule, Severity, VoId};
use fairmesh_site::Rule;

use super::Config;
use crate::privacy::PrivateData;
use crate::users::Writer;

impl Config {
    /// Each such thing, in the order of the file's tables.
    pub fn doubts(&self) -> Vec<Finding> {
        let mut doubts = Vec::new();
        for error in &self.without_effect {
            let text = error.line();
            doubts.push(Finding::new(Code::WithoutEffect, Severity::Error, &text));
        }
        let mut doubt = |code, text: String| {
            doubts.push(Finding::new(code, Severity::Warning, &text));
        };
        let people = self.identity.people().rows().iter();
        let rules = self.identity.rules().iter();
        let is_charged: BTreeSet<VoId> = rules
            .filter_map(|rule| rule.vo)
            .chain(people.filter_map(|person| person.account.vo))
            .collect();
        let mounts = self.policy.entries();
        let mounted: BTreeSet<&str> = mounts
            .filter_map(|(_, entry)| Some(entry.mount.as_ref()?.alias.as_str()))
            .collect();
        for (alias, vo) in &self.vos {
            if !mounted.contains(alias.as_str()) {
                doubt(
                    Code::VoNotMounted,
                    format!(
                        "vos.{alias}: no entry of the share tree mounts this VO, so nobody of it has a share here: \
                         write \"/{alias}\" = {{ share = …, mount = \"{alias}\" }}"
                    ),
                );
            }
            if !is_charged.contains(vo) {
                doubt(
                    Code::VoWithoutRule,
                    format!(
                        "vos.{alias}: no identity rule has vo = \"{alias}\", and no row of the people map names it, so no job here is charged to it"
                    ),
                );
            }
        }
        for text in self.quotas_in_vain() {
            doubt(Code::PriceBeyondUsual, text);
        }
        for text in self.hidden_rules() {
            doubt(Code::RuleHidden, text);
        }
        for (code, text) in self.half_hidden() {
            doubt(code, text.to_owned());
        }
        if let HistoryRule::HalfLife { windows, horizon } = self.history
            && windows > horizon
        {
            doubt(
                Code::HalfLifeBeyondHorizon,
                "history.half_life is longer than history.horizon: usage is forgotten before it weighs half"
                    .to_owned(),
            );
        }
        doubts.extend(self.doubts_of_shares());
        doubts
    }

    fn quotas_in_vain(&self) -> Vec<String> {
        let usual = Factor::from_millionths(2 * Factor::UNITS);
        let above = self
            .quotas
            .iter()
            .filter(|(_, quota)| quota.pricing.most() > usual);
        let above = above.filter_map(|(vo, quota)| {
            let (alias, _) = self.vos.iter().find(|(_, id)| *id == vo)?;
            Some(format!(
                "quota.{alias}.price: it goes up to {}, and counts as 2 unless an allocation's `price_max` allows more",
                quota.pricing.most()
            ))
        });
        above.collect()
    }

    /// What `[privacy]` does that its owner may not expect.
    fn half_hidden(&self) -> Vec<(Code, &'static str)> {
        let hide = &self.privacy.hide;
        let of_entries = [PrivateData::Usage, PrivateData::Priority];
        let is_root = |writer: &Writer| {
            matches!(writer, Writer::Name(name) if name == "root") || *writer == Writer::Uid(0)
        };
        let nobody_else = self.readers.is_empty() && self.sockets.writers.iter().all(is_root);
        let cases = [
            (
                of_entries.iter().any(|what| hide.contains(what)) && self.page.is_some(),
                Code::PageHidden,
                "page: it does not know who reads it, so with privacy.hide it shows metrics without those of entries, \
                 and nothing else",
            ),
            (
                hide.is_empty() && !self.privacy.coordinators.is_empty(),
                Code::CoordinatorsInVain,
                "privacy.coordinators: they are shown jobs of their accounts; all else is shown to everybody, as \
                 privacy.hide is empty",
            ),
            (
                self.slurm.is_some() && hide.contains(&PrivateData::Priority) && nobody_else,
                Code::LookupsHidden,
                "privacy.hide: look-ups of Slurm's user are answered for himself alone, unless he is root",
            ),
        ];
        let cases = cases.into_iter().filter(|(holds, ..)| *holds);
        cases.map(|(_, code, text)| (code, text)).collect()
    }

    fn hidden_rules(&self) -> Vec<String> {
        let rules = self.identity.rules();
        let hidden = self.identity.hidden_rules().into_iter();
        let hidden = hidden.map(|(at, before)| {
            let [conditions, others] = [at, before].map(|at| conditions(&rules[at]));
            let [number, before] = [at, before].map(|at| at + 1);
            format!(
                "identity: rule {number} ({conditions}) is never reached: rule {before} ({others}) stands before \
                 it and takes all its jobs"
            )
        });
        hidden.collect()
    }
}

fn conditions(rule: &Rule) -> String {
    let given = rule.named_conditions();
    let given: Vec<String> = given
        .map(|(name, word)| format!("{name} = \"{}\"", word.text()))
        .collect();
    match given.is_empty() {
        true => "without a condition".to_owned(),
        false => given.join(", "),
    }
}
