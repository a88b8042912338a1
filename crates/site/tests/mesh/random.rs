//! The harness's own dice: small, portable, and the same on every machine (SplitMix64, Steele and
//! others, 2014).

/// A stream of numbers that one seed decides.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True in `percent` of all cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            let other = usize::try_from(self.below(index as u64 + 1)).expect("an index");
            items.swap(index, other);
        }
    }
}

/// Tells a story with several seeds; on a failure the seed is printed.
pub(crate) fn with_seeds(mut story: impl FnMut(u64)) {
    for seed in [1, 2, 3, 5, 8, 13] {
        let told = Told(seed);
        story(seed);
        std::mem::forget(told);
    }
}

struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        eprintln!("the story failed with seed {}", self.0);
    }
}
