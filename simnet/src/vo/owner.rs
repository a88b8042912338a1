//! What a site's owner decides: shares, histories, prices, and who is who.
//!
//! Deliberately not here: a site's whole configuration, which its VOs have a part in.

use fairmesh_model::{Distance, HistoryRule, Share, WindowLength};
use fairmesh_site::{Charging, Pattern, Rule, Timing};

use super::{Vo, percent};

/// What a site's owner decides, for sites that are alike.
#[derive(Debug, Clone)]
pub struct OwnerSpec {
    /// Share of the site that each VO gets.
    pub vo_share: Share,
    /// Whether each VO may have a quarter more than its share at most.
    pub limits: bool,
    /// Whether the VOs are mounted below one entry, by which each is measured by what it used at all members.
    pub together: bool,
    /// How far entries of the owner's are from their targets, where he says it.
    pub distance: Option<Distance>,
    /// Share of the site that `/local` gets; its jobs have the batch account `local`.
    pub local_share: Share,
    /// How local usage is weighed by its age.
    pub local_history: HistoryRule,
    /// Windows of local usage.
    pub local_window: WindowLength,
    /// How local accounts are charged.
    pub charging: Charging,
    /// Classes of machines that each site has; none at 0.
    pub machine_classes: usize,
    /// Which identity rules come before the usual ones ([`Relabel`]).
    pub relabel: Relabel,
    /// How often.
    pub timing: Timing,
}

/// Who is who, beside the usual rule that a VO's job belongs to its group and user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Relabel {
    /// Nobody else.
    #[default]
    Usual,
    /// What `u0` uses counts for his group.
    UserToGroup,
    /// Users of the group `g1` are those of `g0`.
    GroupToGroup,
    /// Those with a Grid identity are known by it.
    Subjects,
}

impl Relabel {
    /// Another one.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Usual => Self::UserToGroup,
            Self::UserToGroup => Self::GroupToGroup,
            Self::GroupToGroup => Self::Subjects,
            Self::Subjects => Self::Usual,
        }
    }

    pub(super) fn rule(self, vo: &Vo) -> Option<Rule> {
        let rule = Rule {
            account: Some(Pattern::parse(&vo.spec.name)),
            vo: Some(vo.id),
            ..Rule::default()
        };
        Some(match self {
            Self::Usual => return None,
            Self::UserToGroup => Rule {
                user: Some(Pattern::parse("u0")),
                path: "/{group}".to_owned(),
                ..rule
            },
            Self::GroupToGroup => Rule {
                group: Some(Pattern::parse("g1")),
                path: "/g0/{user}".to_owned(),
                ..rule
            },
            Self::Subjects => Rule {
                subject: Some(Pattern::parse("/O=grid/*")),
                path: "/g0/{subject}".to_owned(),
                ..rule
            },
        })
    }
}

impl Default for OwnerSpec {
    fn default() -> Self {
        Self {
            vo_share: percent(30),
            local_share: percent(10),
            local_history: HistoryRule::None { horizon: 30 * 24 },
            local_window: WindowLength::HOUR,
            charging: Charging::default(),
            machine_classes: 0,
            limits: false,
            together: false,
            distance: None,
            relabel: Relabel::Usual,
            timing: Timing::default(),
        }
    }
}
