//! What members say to each other of rights: who lacks some asks, and is told how much was sent to him. The
//! rights themselves are in the sender's next head, so an answer that is lost loses nothing.

use fairmesh_model::{CoreMillis, VoId};
use fairmesh_quota::Want;

use crate::requests::{WANT, framed, unframed};

/// Longest request, and longest answer: a few hashes and numbers.
const BYTES_MAX: usize = 512;

/// A request for rights in a VO.
pub(crate) fn want(vo: VoId, want: &Want) -> Vec<u8> {
    framed(WANT, &(vo, want))
}

/// Reads a request for rights in a VO; nothing where it is none.
pub fn read_want(bytes: &[u8]) -> Option<(VoId, Want)> {
    unframed(WANT, bytes, BYTES_MAX)
}

/// How much was sent.
pub(crate) fn given(amount: CoreMillis) -> Vec<u8> {
    framed(WANT, &amount.0)
}

/// Reads how much was sent in answer to one; nothing where it is no such answer.
pub fn read_given(bytes: &[u8]) -> Option<CoreMillis> {
    unframed(WANT, bytes, BYTES_MAX).map(CoreMillis)
}

#[cfg(test)]
mod tests {
    use fairmesh_model::AllocationId;
    use fairmesh_quota::SliceId;

    use super::*;

    #[test]
    fn frames_are_read_back_and_are_none_of_the_anti_entropys() {
        let of = Want {
            slice: SliceId {
                allocation: AllocationId::from_bytes([3; 32]),
                index: 1,
            },
            amount: CoreMillis(u64::MAX),
            taken: CoreMillis(5),
            claim: None,
        };
        let vo = VoId::from_bytes([4; 32]);
        let bytes = want(vo, &of);
        assert!(bytes.len() < BYTES_MAX);
        assert_eq!(read_want(&bytes), Some((vo, of)));
        assert_eq!(read_want(&bytes[..40]), None);
        assert_eq!(read_given(&given(CoreMillis(9))), Some(CoreMillis(9)));
        assert!(fairmesh_gossip::wire::Request::from_bytes(&bytes).is_err());
        assert!(fairmesh_gossip::wire::Response::from_bytes(&given(CoreMillis(0))).is_err());
    }
}
