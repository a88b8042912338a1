//! Faults that are planted on purpose, so that a checker can be seen to find them.
//!
//! A hook is one line beside the code that it breaks: [`mutant!`](crate::mutant!) has the right value
//! and the wrong one, [`mutated!`](crate::mutated!) is a condition. What each fault is, and which
//! invariant is meant to find it, stands in one table, in the simulator.
//!
//! Invariant: without the feature `mutants` nothing can be planted: [`is_planted`] is the constant
//! `false` and the compiler takes the wrong branch away. With it a fault is planted in one thread,
//! from [`plant`] until its guard goes, and other threads do not notice; `FAIRMESH_PLANTED` plants one in all threads
//! of a program of tests (`cargo xtask mutants`). A node's release build is refused by its own `main.rs` where
//! [`CAN_BE_PLANTED`] is true.

/// Whether this build has the switch.
pub const CAN_BE_PLANTED: bool = cfg!(feature = "mutants");

/// Whether the fault of that name is planted in this thread.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is_planted(_name: &str) -> bool {
    false
}

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;
    use std::sync::LazyLock;

    #[expect(
        clippy::disallowed_methods,
        reason = "the tests that are to find the fault know nothing of it"
    )]
    static PLANTED_IN_ALL: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::var("FAIRMESH_PLANTED").ok());

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
        static REACHED: Cell<u64> = const { Cell::new(0) };
    }

    /// The fault stays planted as long as this lives.
    #[derive(Debug)]
    pub struct Planted(());

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }

    /// Plants a fault in this thread, in place of any that is there.
    pub fn plant(name: &'static str) -> Planted {
        PLANTED.set(Some(name));
        REACHED.set(0);
        Planted(())
    }

    /// How often this thread has come by the fault's hooks since it was planted.
    pub fn reached() -> u64 {
        REACHED.get()
    }

    /// Whether the fault of that name is planted in this thread.
    pub fn is_planted(name: &str) -> bool {
        let is_planted = PLANTED.get() == Some(name) || PLANTED_IN_ALL.as_deref() == Some(name);
        if is_planted {
            REACHED.set(REACHED.get() + 1);
        }
        is_planted
    }
}

#[cfg(feature = "mutants")]
pub use switch::{Planted, is_planted, plant, reached};

/// Whether a fault is planted: `if mutated!(NothingPruned) { return; }`.
#[macro_export]
macro_rules! mutated {
    ($name:ident) => {
        $crate::mutant::is_planted(stringify!($name))
    };
}

/// The right value, or the wrong one where the fault is planted: `mutant!(AgeOff, age, age + 1)`.
#[macro_export]
macro_rules! mutant {
    ($name:ident, $right:expr, $wrong:expr) => {
        if $crate::mutated!($name) {
            $wrong
        } else {
            $right
        }
    };
}

#[cfg(all(test, feature = "mutants"))]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_planted_in_one_thread_until_its_guard_goes() {
        let value = || mutant!(ValueOff, 1, 2);
        let planted = plant("ValueOff");
        assert_eq!((value(), reached()), (2, 1));
        let elsewhere = std::thread::scope(|scope| scope.spawn(value).join());
        assert_eq!(elsewhere.expect("it does not panic"), 1);
        drop(planted);
        assert_eq!(value(), 1);
        assert!(!mutated!(ValueOff));
    }
}
