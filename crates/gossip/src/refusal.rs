//! Reasons to refuse what a peer sent. A refusal never changes state.

use fairmesh_model::{DocumentError, SiteId, VoId, WallTime};

/// Why something was refused, and whose fault it is. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is for another VO than the one it came under. The sender's fault.
    #[error("it belongs to VO {0}")]
    WrongVo(VoId),
    /// Form or signature. The sender's fault.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The charter does not list the site. May be our charter that is old.
    #[error("site {0} is not a member")]
    NotMember(SiteId),
    /// The head waits until it is due. That site's clock or ours is wrong.
    #[error("site {site} signed at {at}, in our future: one of the two clocks is wrong")]
    Future {
        /// The site.
        site: SiteId,
        /// The time that it claims.
        at: WallTime,
    },
    /// The site has signed something that no honest node signs, or more than a head may hold. Every
    /// member refuses it.
    #[error("site {site}: {what}")]
    Content {
        /// The site.
        site: SiteId,
        /// What is wrong.
        what: String,
    },
    /// More heads a minute than are taken of one site.
    #[error("site {0} signs too often")]
    TooOften(SiteId),
    /// The rows of the head before it are not paid yet, so it is taken later. No fault.
    #[error("a head of site {0} waits for its turn")]
    Waits(SiteId),
    /// The two heads do not contradict each other. The sender's fault.
    #[error("the two heads of site {0} do not contradict each other")]
    NoProof(SiteId),
}

impl Refusal {
    /// Whether no honest node would have sent it, so that the sender's score falls. Other refusals happen between
    /// honest nodes whose charters or clocks differ for a while.
    pub fn is_lie(&self) -> bool {
        matches!(
            self,
            Self::Document(_) | Self::WrongVo(_) | Self::NoProof(_) | Self::Content { .. }
        )
    }
}
