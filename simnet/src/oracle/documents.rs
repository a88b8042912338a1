//! Charters and share policies that were signed, and which of them a site goes by.
//!
//! Invariant: of what a site holds, only what was signed here counts, and of each document its
//! highest version. Deliberately not here: whether a site may hold it, which is `policies`' to see.

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Charter, SharePolicy, Signed, UsageMode, UsageRecord, VoId};

use super::cost::Cost;
use super::ledger::Terms;
use super::owner::Owner;
use super::tree::Held;

/// What a site holds of each VO that it holds a charter of.
pub type HeldVos<'a> = BTreeMap<VoId, Held<'a>>;

#[derive(Debug)]
enum Document {
    Charter(Box<Charter>, VoId),
    Policy(Box<SharePolicy>),
}

/// All documents, by their exact bytes.
#[derive(Debug, Default)]
pub struct Documents {
    by_bytes: BTreeMap<Vec<u8>, Document>,
    /// The newest charter of each VO.
    newest: BTreeMap<VoId, (u64, Vec<u8>)>,
    /// The newest policy of each path.
    newest_policy: BTreeMap<(VoId, AccountPath), (u64, Vec<u8>)>,
}

impl Documents {
    /// An authority has signed a document.
    pub fn signed(&mut self, bytes: &[u8]) {
        if self.by_bytes.contains_key(bytes) {
            return;
        }
        if let Ok(charter) = Signed::<Charter>::parse(bytes) {
            let (vo, body) = (charter.vo(), charter.claimed().clone());
            let known = self.newest.entry(vo).or_default();
            *known = (body.version, bytes.to_vec()).max(std::mem::take(known));
            let document = Document::Charter(Box::new(body), vo);
            self.by_bytes.insert(bytes.to_vec(), document);
        } else if let Ok(policy) = Signed::<SharePolicy>::parse(bytes) {
            let body = policy.claimed().clone();
            let known = self
                .newest_policy
                .entry((body.vo, body.path.clone()))
                .or_default();
            *known = (body.version, bytes.to_vec()).max(std::mem::take(known));
            self.by_bytes
                .insert(bytes.to_vec(), Document::Policy(Box::new(body)));
        }
    }

    /// Whether an authority has signed a charter or a policy, to the byte; true of any other document.
    pub fn is_signed(&self, bytes: &[u8]) -> bool {
        let is_judged =
            Signed::<Charter>::parse(bytes).is_ok() || Signed::<SharePolicy>::parse(bytes).is_ok();
        !is_judged || self.by_bytes.contains_key(bytes)
    }

    /// What is in force for who holds these documents.
    pub fn in_force<'a>(&'a self, held: impl IntoIterator<Item = impl AsRef<[u8]>>) -> HeldVos<'a> {
        let mut vos: HeldVos<'a> = BTreeMap::new();
        let mut policies: Vec<&'a SharePolicy> = Vec::new();
        for bytes in held {
            match self.by_bytes.get(bytes.as_ref()) {
                Some(Document::Charter(charter, vo)) => {
                    let held = vos.entry(*vo).or_insert_with(|| Held {
                        charter,
                        policies: BTreeMap::new(),
                    });
                    if charter.version > held.charter.version {
                        held.charter = charter;
                    }
                }
                Some(Document::Policy(policy)) => policies.push(policy),
                None => {}
            }
        }
        for policy in policies {
            let Some(held) = vos.get_mut(&policy.vo) else {
                continue;
            };
            let known = held.policies.entry(&policy.path).or_insert(policy);
            if policy.version > known.version {
                *known = policy;
            }
        }
        vos
    }

    /// What is in force for who has heard of everything.
    pub fn newest(&self) -> HeldVos<'_> {
        let charters = self.newest.values().map(|(_, bytes)| bytes.clone());
        let policies = self.newest_policy.values().map(|(_, bytes)| bytes.clone());
        self.in_force(charters.chain(policies))
    }

    /// By which rules a site counts a report; `None` where it has no charter of the VO, or nobody
    /// can say what the job costs.
    pub fn terms(owner: &Owner, held: &HeldVos<'_>, record: &UsageRecord) -> Option<Terms> {
        let account = owner.account(record);
        let charter = match account.0 {
            Some(vo) => Some(held.get(&vo)?.charter),
            None => None,
        };
        let (rule, discounts) = charter.map_or((&owner.charging, &owner.discounts), |charter| {
            (&charter.charging, &charter.discounts)
        });
        Some(Terms {
            cost: Cost::of(record, (rule, discounts), &owner.prices, |machine| {
                owner.class_of(machine)
            })?,
            window: charter.map_or(owner.window, |charter| charter.window),
            counts_running: charter
                .is_none_or(|charter| charter.usage_mode != UsageMode::Historical),
            account,
        })
    }
}
