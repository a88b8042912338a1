//! What somebody who runs a node should know, of one type for all that looks: the node itself (`status`),
//! `check-config`, `netcheck`, `slurm check`, `doctor`, the page, metrics and alerts.
//!
//! Invariant: a finding has a code of [`Code`], which never changes its meaning, and each code has a section of
//! `docs/troubleshooting.md` that says what to do; that page is a part of the program, so there is one text of it.
//! Deliberately not here: looking (`control/health`, `config/lint`, `doctor`).

use fairmesh_model::Severity;
use fairmesh_model::clean;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The page with a section for each code.
const PAGE: &str = include_str!("../../../docs/troubleshooting.md");

/// What begins the paragraph that says what to do.
const REMEDY: &str = "Do: ";

/// Something that an operator should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// A stable name.
    pub code: String,
    /// `info`, `warning` or `error`.
    pub severity: String,
    /// In words.
    pub text: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// `fairmesh.doctor/1`.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DoctorBody {
    /// What was looked at.
    pub looked_at: Vec<String>,
    /// Whether nothing needs attention.
    pub healthy: bool,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
}

/// All that can be found. Codes are for alerts, scripts and the headings of `docs/troubleshooting.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
#[expect(missing_docs, reason = "docs/troubleshooting.md says what each means")]
pub enum Code {
    // Of the configuration.
    ConfigUnreadable,
    ConfigInvalid,
    KeyUnreadable,
    KeyRefused,
    WriterUnknown,
    VoNotMounted,
    VoWithoutRule,
    RuleHidden,
    HalfLifeBeyondHorizon,
    SharesAreWeights,
    PriceBeyondUsual,
    WithoutEffect,
    PageHidden,
    CoordinatorsInVain,
    LookupsHidden,
    ReloadRejected,
    // Of the node.
    NodeAway,
    VersionDiffers,
    Unmapped,
    WithoutLine,
    BelowMount,
    Namesakes,
    TreeWarning,
    OwnClockOff,
    OverBudget,
    RecordsRefused,
    RejectsWait,
    LogLost,
    LogUnwritten,
    BadRow,
    StoreDamaged,
    CountersRecovered,
    DiskFull,
    DiskLow,
    DiskFills,
    // Of VOs and their documents.
    CharterMissing,
    NotAMember,
    VoFounded,
    DocumentAdopted,
    PolicyWarning,
    PolicyExpires,
    PolicySnapshot,
    Refused,
    // Of other sites.
    NotListening,
    Alone,
    PeerUnreachable,
    PeerWithoutAddress,
    PeerNeverExchanged,
    PeerSilent,
    PeerRefuses,
    PeerOtherKey,
    PeerThroughOthers,
    PeerNoMember,
    PeerOverBudget,
    ClockOff,
    SiteForked,
    SiteTwice,
    OverCapacity,
    UsageTakenBack,
    // Of the batch systems beside the node.
    LoopSilent,
    LoopFailing,
    LoopBehind,
    LoopStopped,
    SourceAway,
    SlurmAway,
    SlurmSetup,
    SlurmUnmapped,
    SlurmRange,
    SlurmCapacity,
    GridengineAway,
    GridengineSetup,
    GridengineUnmapped,
    GridengineRange,
    GridengineCapacity,
    CondorAway,
    CondorSetup,
    CondorUnmapped,
    CondorRange,
    CondorCapacity,
    PbsAway,
    PbsSetup,
    PbsUnmapped,
    PbsRange,
    PbsCapacity,
    LsfAway,
    LsfSetup,
    LsfUnmapped,
    LsfRange,
    LsfCapacity,
}

impl Code {
    /// As it is written.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Its section of the page, without the heading.
    pub fn section(self) -> &'static str {
        sections()
            .find(|(code, _)| *code == self.name())
            .map_or("", |(_, text)| text)
    }

    /// What to do, on one line.
    fn remedy(self) -> Option<String> {
        let paragraph = self
            .section()
            .split("\n\n")
            .find_map(|paragraph| paragraph.trim().strip_prefix(REMEDY))?;
        Some(paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// Headings and texts of the page.
fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    let parts = PAGE.split("\n### `").skip(1);
    parts.filter_map(|part| {
        let (code, text) = part.split_once("`\n")?;
        // The next heading of a group ends it.
        let text = text.split("\n## ").next().unwrap_or(text);
        Some((code, text.trim()))
    })
}

impl Finding {
    /// One with what the page says of its code.
    pub fn new(code: Code, severity: Severity, text: &str) -> Self {
        let severity = match severity {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        Self {
            code: code.name().to_owned(),
            severity: severity.to_owned(),
            text: clean(text),
            remedy: code.remedy(),
        }
    }

    /// The same, where more is known of what to do.
    #[must_use]
    pub fn with_remedy(self, remedy: &str) -> Self {
        Self {
            remedy: Some(clean(remedy)),
            ..self
        }
    }

    /// Whether somebody should look at it.
    pub fn needs_somebody(&self) -> bool {
        self.severity != "info"
    }

    /// The smaller, the worse.
    pub fn weight(&self) -> u8 {
        match self.severity.as_str() {
            "error" => 0,
            "warning" => 1,
            _ => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_a_section_that_says_what_to_do_and_every_section_a_code() {
        let codes: BTreeSet<&str> = Code::VARIANTS.iter().map(|code| code.name()).collect();
        let headings: Vec<&str> = sections().map(|(code, _)| code).collect();
        let distinct: BTreeSet<&str> = headings.iter().copied().collect();
        assert_eq!(codes, distinct);
        assert_eq!(headings.len(), codes.len(), "a section is there twice");
        for code in Code::VARIANTS {
            let remedy = code.remedy();
            assert!(remedy.is_some(), "{} does not say what to do", code.name());
            let about = code.section().split("\n\n").next().unwrap_or_default();
            assert!(
                !about.is_empty() && !about.starts_with(REMEDY),
                "{} does not say what it means",
                code.name()
            );
        }
    }

    #[test]
    fn a_finding_says_what_to_do_on_one_line() {
        let found = Finding::new(Code::Alone, Severity::Error, "no other\u{1b}[2J site");
        assert_eq!(
            (found.code.as_str(), found.severity.as_str()),
            ("alone", "error")
        );
        let remedy = found.remedy.expect("the page says");
        assert!(remedy.contains("fairmesh netcheck"), "{remedy}");
        assert!(!remedy.contains('\n') && !found.text.contains('\u{1b}'));
    }
}
