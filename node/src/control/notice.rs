//! Which finding each notice of the site is.
//!
//! Invariant: a notice and its finding have one code.

use fairmesh_api::finding::Code;
use fairmesh_site::Notice;

/// That of a site's notice.
pub(super) fn finding_code(notice: &Notice) -> Code {
    match notice {
        Notice::Founded { .. } => Code::VoFounded,
        Notice::Adopted { .. } => Code::DocumentAdopted,
        Notice::Policy { .. } => Code::PolicyWarning,
        Notice::Snapshot { .. } => Code::PolicySnapshot,
        Notice::Refused { .. } => Code::Refused,
        Notice::ClockOff { .. } => Code::ClockOff,
        Notice::OwnClockOff { .. } => Code::OwnClockOff,
        Notice::Forked { .. } => Code::SiteForked,
        Notice::Twice { .. } => Code::SiteTwice,
        Notice::Recovered { .. } => Code::CountersRecovered,
        Notice::OverCapacity { .. } => Code::OverCapacity,
        Notice::TookBack { .. } => Code::UsageTakenBack,
        Notice::OverBudget { .. } => Code::OverBudget,
        Notice::BadRow { .. } => Code::BadRow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sites_notices_have_the_codes_that_they_call_themselves() {
        let vo = fairmesh_model::VoId::from_bytes([1; 32]);
        let notices = [
            Notice::Recovered { vo },
            Notice::OverBudget {
                vo,
                until: fairmesh_model::WallTime(0),
            },
            Notice::BadRow {
                what: String::new(),
            },
            Notice::OwnClockOff {
                what: String::new(),
            },
            Notice::Adopted {
                vo,
                what: String::new(),
            },
        ];
        for notice in notices {
            assert_eq!(finding_code(&notice).name(), notice.code());
        }
    }
}
