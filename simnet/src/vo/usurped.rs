//! Documents that no site may take: each lacks a signature that it needs.
//!
//! Invariant: each is well-formed and follows what was signed last, so that only its signatures speak against it.
//! Deliberately not here: who hands them in, and when (`world::apply`).
//! Source: TUF specification 1.0, section 5.3: a threshold counts distinct keys.

use fairmesh_model::signed::Document;
use fairmesh_model::{Charter, DocumentError, Role, Signed, SigningKey, Weight};

use super::{THRESHOLD_MIN, Vo, key};

/// The first byte of a CBOR array of up to 23 items, less their number.
const ARRAY: u8 = 0x80;

impl Vo {
    /// The next policy, and a charter without most members, each signed by one key too few and by one of these keys
    /// twice; and a charter that takes the VO over, which its own keys have signed alone. An earlier charter may ask
    /// for fewer signatures: `knows_newest` says that they go to a node that holds the newest one.
    pub fn usurped(&self, knows_newest: bool) -> Result<[Vec<u8>; 5], DocumentError> {
        let charter = self.charter.claimed();
        let mut policy = self.policy.claimed().clone();
        policy.version += 1;
        for entry in policy.shares.values_mut() {
            entry.share = Weight::ZERO;
        }
        let next = Charter {
            version: charter.version + 1,
            vo: Some(self.id),
            previous: Some(self.charter.hash()),
            ..charter.clone()
        };
        let mut halved = next.clone();
        halved.sites.truncate(1);
        // What it asks for itself does not count.
        halved.authority.threshold = 1;
        let usurper = key("usurper", 0);
        let taken_over = Charter {
            authority: Role::single(usurper.key_id()),
            policy: Role::single(usurper.key_id()),
            ..next
        };
        let threshold = match knows_newest {
            true => charter.policy.threshold,
            false => THRESHOLD_MIN,
        };
        let (of_policy, of_charter) = (
            self.keys(0, threshold - 1),
            self.keys(1, charter.authority.threshold - 1),
        );
        Ok([
            signed_twice(&policy, &of_policy)?,
            signed_twice(&halved, &of_charter)?,
            Signed::sign(policy, &of_policy)?.bytes().to_vec(),
            Signed::sign(halved, &of_charter)?.bytes().to_vec(),
            Signed::sign(taken_over, &[&usurper])?.bytes().to_vec(),
        ])
    }
}

/// A document on which the last of `keys` has two signatures.
fn signed_twice<T: Document>(body: &T, keys: &[&SigningKey]) -> Result<Vec<u8>, DocumentError> {
    let (_, others) = keys.split_last().expect("a key signs it");
    let without = Signed::sign(body.clone(), others)?;
    let signed = Signed::sign(body.clone(), keys)?;
    let mut bytes = signed.bytes().to_vec();
    // Signatures come last, in an array; the two envelopes differ in its length first.
    let pairs = bytes.iter().zip(without.bytes().iter());
    let length = pairs.take_while(|(a, b)| a == b).count();
    let count = u8::try_from(keys.len()).expect("few");
    assert_eq!(bytes[length], ARRAY + count, "the length of the array");
    let last = bytes[without.bytes().len()..].to_vec();
    bytes[length] += 1;
    bytes.extend(last);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use fairmesh_model::SharePolicy;

    use super::*;
    use crate::vo::VoSpec;

    #[test]
    fn a_document_that_one_key_signed_twice_is_refused_for_that() {
        for thresholds in [false, true] {
            let spec = VoSpec {
                thresholds,
                ..VoSpec::small("grid", 3)
            };
            let mut vo = Vo::found(0, spec).expect("a valid VO");
            if thresholds {
                let raised = vo.next_charter(|charter| charter.policy.threshold = 3);
                raised.expect("a valid charter");
            }
            let [policy, charter, ..] = vo.usurped(true).expect("they are well-formed");
            let refused = [
                Signed::<SharePolicy>::parse(&policy).map(drop),
                Signed::<Charter>::parse(&charter).map(drop),
            ];
            for refused in refused {
                let why = refused.expect_err("one key has signed twice").to_string();
                assert!(why.contains("has signed it twice"), "{why}");
            }
        }
    }
}
