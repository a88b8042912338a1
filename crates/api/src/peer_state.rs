//! In which state another site is. All that shows peers uses this one list: `status`, `peers`, `netcheck`, `doctor`, the
//! page, `top`, the demo, metrics and alerts.
//!
//! Invariant: each state has one row of the table in docs/reference/peers.md, with its level, code and remedy.

use fairmesh_model::Severity;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::finding::Code;

/// The state of another site.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum PeerState {
    /// Connected; both hold the same, as the last comparison of digests found.
    InSync,
    /// Connected; one holds more than the other, or the first exchange is running.
    #[default]
    Exchanging,
    /// Not connected; what it publishes arrives through other sites.
    ThroughOthers,
    /// A peer of `network.peers` that no charter in force lists.
    NoMember,
    /// Connected, and no exchange has ended.
    NeverExchanged,
    /// Connected; exchanges fail, or it has signed nothing for long.
    Silent,
    /// Kept out for a while, because it sends too much.
    OverBudget,
    /// It closes the connection.
    Refused,
    /// Another key answers at its address.
    OtherKey,
    /// Not connected, and nothing of it arrives.
    Unreachable,
}

impl PeerState {
    /// As JSON, metrics and tables have it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// As a sentence about several sites begins.
    pub fn predicate(self) -> &'static str {
        match self {
            Self::InSync => "in sync",
            Self::Exchanging => "exchanging",
            Self::ThroughOthers => "reached through others",
            Self::NoMember => "listed by no charter",
            Self::NeverExchanged => "connected, and no exchange has ended",
            Self::Silent => "connected and silent",
            Self::OverBudget => "kept out, because they send too much",
            Self::Refused => "closing the connection",
            Self::OtherKey => "answering with another key",
            Self::Unreachable => "unreachable",
        }
    }

    /// What an operator reads about it, and how bad it is; nothing where all is well.
    pub fn code(self) -> Option<(Code, Severity)> {
        Some(match self {
            Self::InSync | Self::Exchanging => return None,
            Self::ThroughOthers => (Code::PeerThroughOthers, Severity::Info),
            Self::NoMember => (Code::PeerNoMember, Severity::Info),
            Self::NeverExchanged => (Code::PeerNeverExchanged, Severity::Warning),
            Self::Silent => (Code::PeerSilent, Severity::Warning),
            Self::OverBudget => (Code::PeerOverBudget, Severity::Warning),
            Self::Refused => (Code::PeerRefuses, Severity::Warning),
            Self::OtherKey => (Code::PeerOtherKey, Severity::Warning),
            Self::Unreachable => (Code::PeerUnreachable, Severity::Warning),
        })
    }

    /// Whether an operator need not look at it.
    pub fn is_well(self) -> bool {
        let severity = self.code().map(|(_, severity)| severity);
        severity.is_none_or(|severity| severity == Severity::Info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/reference/peers.md");

    #[test]
    fn each_state_has_its_row_in_the_reference() {
        let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
        let rows: Vec<Vec<&str>> = rows
            .map(|line| line.split('|').map(str::trim).collect())
            .collect();
        let shown: Vec<[String; 4]> = rows
            .iter()
            .map(|row| [1, 3, 4, 5].map(|column| row[column].replace('`', "")))
            .collect();
        let expected = PeerState::VARIANTS.iter().map(|state| {
            let (code, level) = match state.code() {
                None => ("–", "–"),
                Some((code, Severity::Info)) => (code.name(), "info"),
                Some((code, Severity::Warning)) => (code.name(), "warning"),
                Some((code, Severity::Error)) => (code.name(), "error"),
            };
            let exit = u8::from(!state.is_well()).to_string();
            [
                state.name().to_owned(),
                level.to_owned(),
                code.to_owned(),
                exit,
            ]
        });
        assert_eq!(shown, expected.collect::<Vec<_>>());
    }
}
