//! One number for all heads and proofs of a VO in a replica: equal if and only if these are equal.
//!
//! It is a sum modulo 2^256 of one SHA-256 a member, over the list of all that is held of the member, so a change
//! costs one hash. A member chooses the heads that it signs. In a sum over single heads it could combine its four
//! heads of either side into two sets with one sum, by Wagner's generalized birthday (2002): with 2^32 signatures
//! where 128 bits are added. Here each member has one addend: two sets of heads of one member that agree are a
//! collision of SHA-256, and four members that collude need 2^64 signatures. So it is compared in full length, too.

use fairmesh_model::ContentHash;

/// The sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeadsSum {
    high: u128,
    low: u128,
}

impl HeadsSum {
    /// The addend of a member; zero if the replica holds nothing of it.
    pub(crate) fn for_member(
        heads: impl Iterator<Item = ContentHash>,
        proof: impl Iterator<Item = ContentHash>,
    ) -> Self {
        // The leading byte separates heads from proofs: a proof's head must not look like a head in force.
        let heads = heads.map(|hash| (0, hash));
        let all = heads.chain(proof.map(|hash| (1, hash)));
        let all: Vec<u8> = all
            .flat_map(|(kind, hash)| std::iter::once(kind).chain(*hash.as_bytes()))
            .collect();
        // So that a member of which nothing is held changes nothing: replicas add one only when its first head comes.
        if all.is_empty() {
            return Self::default();
        }
        let hash = ContentHash::of(&all);
        let half = |from: usize| {
            let half = hash.as_bytes()[from..].first_chunk().expect("half a hash");
            u128::from_be_bytes(*half)
        };
        Self {
            high: half(0),
            low: half(16),
        }
    }

    /// The sum with one more addend.
    pub(crate) fn plus(self, other: Self) -> Self {
        let (low, carry) = self.low.overflowing_add(other.low);
        let high = self.high.wrapping_add(other.high);
        Self {
            high: high.wrapping_add(u128::from(carry)),
            low,
        }
    }

    /// The sum without one of its addends.
    pub(crate) fn minus(self, other: Self) -> Self {
        let (low, borrow) = self.low.overflowing_sub(other.low);
        let high = self.high.wrapping_sub(other.high);
        Self {
            high: high.wrapping_sub(u128::from(borrow)),
            low,
        }
    }

    /// All 256 bits, most significant first.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.high.to_be_bytes());
        bytes[16..].copy_from_slice(&self.low.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The hashes of a set of heads whose first halves are these.
    fn heads<const N: usize>(halves: [u128; N]) -> [ContentHash; N] {
        halves.map(|half| {
            let mut bytes = [7; 32];
            bytes[..16].copy_from_slice(&half.to_be_bytes());
            ContentHash::from_bytes(bytes)
        })
    }

    /// What was compared before: a sum of half hashes, folded.
    fn folded(heads: &[ContentHash]) -> u64 {
        let halves = heads
            .iter()
            .map(|hash| u128::from_be_bytes(*hash.as_bytes().first_chunk().expect("half a hash")));
        let sum = halves.fold(0, u128::wrapping_add).to_be_bytes();
        let word = |from: usize| u64::from_be_bytes(*sum[from..].first_chunk().expect("a word"));
        word(0) ^ word(8)
    }

    #[test]
    fn sets_of_heads_that_a_plain_sum_takes_for_one_differ() {
        let none = std::iter::empty;
        let of_one = |heads: &[ContentHash]| HeadsSum::for_member(heads.iter().copied(), none());
        let (a, b) = (heads([5, 9]), heads([6, 8]));
        assert_eq!(folded(&a), folded(&b), "one total");
        assert_ne!(of_one(&a), of_one(&b));
        // Another total, which differs by the same bits in both words.
        let (c, d) = (heads([0]), heads([(1 << 64) + 1]));
        assert_eq!(folded(&c), folded(&d));
        assert_ne!(of_one(&c), of_one(&d));
        // Of two members, with one head each.
        let of_two = |heads: &[ContentHash]| {
            let addends = heads.iter().map(|head| of_one(&[*head]));
            addends.fold(HeadsSum::default(), HeadsSum::plus)
        };
        assert_ne!(of_two(&a), of_two(&b));
        // A proof is no head.
        let proof = HeadsSum::for_member(none(), a.into_iter());
        assert_ne!(of_one(&a), proof);
    }

    proptest! {
        #[test]
        fn what_is_added_and_taken_away_leaves_the_rest(
            a in any::<[u128; 2]>(),
            b in any::<[u128; 2]>(),
        ) {
            let sum = |[high, low]: [u128; 2]| HeadsSum { high, low };
            let (a, b) = (sum(a), sum(b));
            prop_assert_eq!(a.plus(b).minus(b), a);
            prop_assert_eq!(a.plus(b), b.plus(a));
        }
    }
}
