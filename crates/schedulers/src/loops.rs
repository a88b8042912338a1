//! "Stop" for threads that sleep: a flag that wakes them.
//!
//! Invariant: once told, every wait ends at once and for ever. Deliberately not here: signals, which
//! the caller turns into [`Stop::now`].

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Shared by those who stop and those who are stopped.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop {
    shared: Arc<(Mutex<bool>, Condvar)>,
}

impl Stop {
    /// Ends every wait.
    pub(super) fn now(&self) {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.1.notify_all();
    }

    /// Whether it was told.
    pub(super) fn is_told(&self) -> bool {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps for `time` or until told; whether it was told.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let told = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .shared
            .1
            .wait_timeout_while(told, time, |told| !*told)
            .unwrap_or_else(PoisonError::into_inner);
        *waited.0
    }
}
