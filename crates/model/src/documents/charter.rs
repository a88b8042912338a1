//! The charter: a VO's root document.
//!
//! Invariant: charter 1 names no VO and no predecessor (its hash becomes the VO's id); every later
//! one names both. Its sites are distinct, its roles can be satisfied, and its rules are sane.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::level::Distance;
use super::rules::{ChargingRule, Discounts, HistoryRule, UsageMode};
use crate::ids::{ContentHash, SiteId, VoId};
use crate::record::NAME_BYTES_MAX;
use crate::signed::{Document, Role};
use crate::time::WallTime;
use crate::visible::is_visible;
use crate::window::WindowLength;

/// Most member sites of one VO: bounds version vectors and the charter itself. Ten times the
/// sites of the largest Grid in production.
pub const CHARTER_SITES_MAX: usize = 2_000;

/// Most VOs that may read one VO's policies: far more than federations that host one project.
pub const READERS_MAX: usize = 256;

/// Most cores of one site: more than the largest machine that was ever built has. What 2,000 of them do in the longest
/// time that counts is summed in 64 bits.
const CORES_MAX: u32 = 1 << 24;

/// Shortest windows, ms. Those of up to three days are counted each by itself: half as many parts as a head may have.
const WINDOW_MS_MIN: u64 = 60_000;

/// Longest history, in windows: bounds weight tables (8 bytes a window) and live state. Ten years
/// of hours.
const HISTORY_WINDOWS_MAX: u64 = 87_600;

/// A site that takes part in a VO.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSite {
    /// The site's id, which is its public key.
    pub site: SiteId,
    /// What people call it; unique in the charter.
    pub name: String,
    /// Declared capacity: the most cores that it may report as used at one moment.
    pub cores: u32,
    /// The most GPUs; where it is not said, any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// The most memory, GiB; where it is not said, any amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_gib: Option<u32>,
    /// Where it can be reached, as libp2p multiaddresses.
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// Authority keys, member sites and rules of a VO.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charter {
    /// 1, 2, 3 …, without gaps.
    pub version: u64,
    /// The VO; absent in charter 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vo: Option<VoId>,
    /// Payload hash of the charter before; absent in charter 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<ContentHash>,
    /// What people call the VO.
    pub name: String,
    /// When it was signed, by the signer's clock.
    pub issued: WallTime,
    /// When it should have been renewed. Expiry degrades answers, it does not stop them.
    pub expires: WallTime,
    /// The keys that sign the next charter, and how many must.
    pub authority: Role,
    /// Who signs the share policy of `/`.
    pub policy: Role,
    /// Who counts usage for this VO.
    pub sites: Vec<MemberSite>,
    /// Length of the windows in which usage is counted. Fixed for as long as the VO exists.
    pub window: WindowLength,
    /// How usage is weighed by its age.
    pub history: HistoryRule,
    /// Which usage makes priorities.
    pub usage_mode: UsageMode,
    /// What a job is charged.
    pub charging: ChargingRule,
    /// What use on other than the usual terms is charged.
    #[serde(default, skip_serializing_if = "Discounts::are_none")]
    pub discounts: Discounts,
    /// How a deviation is measured below this VO's mount.
    pub distance: Distance,
    /// VOs that may mount this VO's policy: their members may have its charters and policies, and nothing else.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub readers: BTreeSet<VoId>,
    /// Who signs snapshots, by keys that are online and can do nothing else; nobody where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Role>,
}

impl Charter {
    /// The entry of `site`, if it is a member.
    pub fn member(&self, site: SiteId) -> Option<&MemberSite> {
        self.sites.iter().find(|member| member.site == site)
    }

    /// A key that lies on a machine that is online must be worth nothing else.
    fn validate_snapshot(&self) -> Result<(), String> {
        let Some(role) = &self.snapshot else {
            return Ok(());
        };
        role.validate("snapshot")?;
        let others = [("authority", &self.authority), ("policy", &self.policy)];
        for (name, other) in others {
            if let Some(key) = role.keys.intersection(&other.keys).next() {
                return Err(format!(
                    "{key} is a key of `snapshot` and of `{name}`: the online key may do nothing else"
                ));
            }
        }
        Ok(())
    }

    fn validate_sites(&self) -> Result<(), String> {
        if self.sites.len() > CHARTER_SITES_MAX {
            return Err(format!("more than {CHARTER_SITES_MAX} sites"));
        }
        let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
        for member in &self.sites {
            if !ids.insert(member.site) {
                return Err(format!("site {} is listed twice", member.site));
            } else if !names.insert(&member.name) {
                return Err(format!("two sites have the name `{}`", member.name));
            }
            validate_name("site", &member.name)?;
            if member.cores > CORES_MAX {
                let name = &member.name;
                return Err(format!("site `{name}`: more than {CORES_MAX} cores"));
            }
            if member.addresses.len() > 16
                || member
                    .addresses
                    .iter()
                    .any(|address| address.len() > NAME_BYTES_MAX)
            {
                return Err(format!(
                    "site `{}`: too many or too long addresses",
                    member.name
                ));
            }
        }
        Ok(())
    }

    fn validate_history(&self) -> Result<(), String> {
        let (least, windows) = match self.history {
            HistoryRule::Windows { length, count, .. } => {
                (length.min(count), u64::from(length) * u64::from(count))
            }
            HistoryRule::HalfLife { windows, horizon } => {
                (windows.min(horizon), u64::from(horizon.max(windows)))
            }
            HistoryRule::None { horizon } => (horizon, u64::from(horizon)),
            HistoryRule::RunningOnly => (1, 1),
        };
        let window = self.window.millis().0;
        if window < WINDOW_MS_MIN {
            let seconds = window / 1_000;
            return Err(format!(
                "windows of {seconds} s; a minute is the shortest that all can count in"
            ));
        }
        if least == 0 || windows > HISTORY_WINDOWS_MAX {
            return Err(format!(
                "history of 0 or more than {HISTORY_WINDOWS_MAX} windows: {:?}",
                self.history
            ));
        }
        Ok(())
    }
}

impl Document for Charter {
    const TYPE: &'static str = "charter";
    const BYTES_MAX: usize = 1 << 20;

    fn vo(&self) -> Option<VoId> {
        self.vo
    }

    fn validate(&self) -> Result<(), String> {
        let first = self.version == 1;
        if self.version == 0 || self.vo.is_none() != first || self.previous.is_none() != first {
            return Err(format!(
                "version {} with{} VO and with{} predecessor",
                self.version,
                if self.vo.is_some() { "" } else { "out" },
                if self.previous.is_some() { "" } else { "out" }
            ));
        }
        if self.expires <= self.issued {
            return Err("expires before it is issued".to_owned());
        }
        if self.readers.len() > READERS_MAX {
            return Err(format!("more than {READERS_MAX} readers"));
        }
        validate_name("VO", &self.name)?;
        self.authority.validate("authority")?;
        self.policy.validate("policy")?;
        self.validate_snapshot()?;
        self.charging.validate()?;
        self.validate_sites()?;
        self.validate_history()
    }
}

/// Names that go into paths, tables and logs: short, visible, without slashes.
pub(super) fn validate_name(what: &str, name: &str) -> Result<(), String> {
    let good =
        !name.is_empty() && name.len() <= 64 && name.chars().all(|c| is_visible(c) && c != '/');
    if good {
        Ok(())
    } else {
        Err(format!(
            "{what} name `{}` is empty, too long or has characters that are not visible",
            name.escape_debug()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signed::{Signed, SigningKey};

    #[test]
    fn what_no_node_could_keep_is_no_charter() {
        let key = SigningKey::from_secret(&[5; 32]);
        let site = MemberSite {
            site: SiteId::from_bytes([1; 32]),
            name: "site".to_owned(),
            cores: CORES_MAX,
            gpus: None,
            mem_gib: None,
            addresses: Vec::new(),
        };
        let role = Role::single(key.key_id());
        let charter = Charter {
            version: 1,
            vo: None,
            previous: None,
            name: "vo".to_owned(),
            issued: WallTime(1),
            expires: WallTime(2),
            authority: role.clone(),
            policy: role,
            sites: vec![site],
            window: WindowLength::from_millis(60_000).expect("divides a day"),
            history: HistoryRule::None { horizon: 24 },
            usage_mode: UsageMode::default(),
            charging: ChargingRule::default(),
            discounts: Discounts::NONE,
            distance: Distance::default(),
            readers: BTreeSet::new(),
            snapshot: None,
        };
        let says = |charter: &Charter| Signed::sign(charter.clone(), &[&key]).map(drop);
        assert!(says(&charter).is_ok());
        let mut short = charter.clone();
        short.window = WindowLength::from_millis(30_000).expect("divides a day");
        let why = says(&short).expect_err("half a minute").to_string();
        assert!(
            why.contains("windows of 30 s; a minute is the shortest"),
            "{why}"
        );
        let mut large = charter;
        large.sites[0].cores += 1;
        let why = says(&large).expect_err("one too many").to_string();
        assert!(why.contains("more than 16777216 cores"), "{why}");
    }
}
