//! The clocks that a node can run on: the machine's, or a faster one for demonstrations.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fairmesh_model::{Millis, MonoTime, Now, WallTime};

/// Where a node takes its time from. `mono` always runs at the machine's pace: timers and
/// intervals are real. `wall` may run faster, and with it windows and jobs.
pub trait Clock: Send + Sync + 'static {
    /// The current monotonic and wall-clock time.
    fn now(&self) -> Now;
}

/// The clocks of the operating system.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose `mono` starts now.
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        Now {
            mono: mono_since(self.started),
            wall: wall_now(),
        }
    }
}

/// A wall clock that stands at a given moment until it is let go, and then runs `factor` times as
/// fast up to an end.
#[derive(Debug)]
pub struct FastClock {
    started: Instant,
    let_go: OnceLock<Instant>,
    origin: WallTime,
    factor_permille: u64,
    end: AtomicU64,
}

impl FastClock {
    /// Stands at `origin`; a `factor_permille` of 1,000 is the machine's pace.
    pub fn new(origin: WallTime, factor_permille: u64) -> Self {
        let started = Instant::now();
        Self {
            started,
            let_go: OnceLock::new(),
            origin,
            factor_permille,
            end: AtomicU64::new(u64::MAX),
        }
    }

    /// Runs from now on.
    pub fn go(&self) {
        self.let_go.get_or_init(Instant::now);
    }

    /// Stands still from `end` on.
    pub fn stop_at(&self, end: WallTime) {
        self.end.store(end.0, Ordering::Release);
    }

    /// How much of its time passes in so many of the machine's milliseconds.
    pub fn paced(&self, real_ms: u64) -> u64 {
        let paced = u128::from(real_ms) * u128::from(self.factor_permille) / 1_000;
        u64::try_from(paced).unwrap_or(u64::MAX)
    }
}

impl Clock for FastClock {
    fn now(&self) -> Now {
        let since = self.let_go.get().map_or(0, |let_go| mono_since(*let_go).0);
        let wall = self.origin.after(Millis(self.paced(since)));
        Now {
            mono: mono_since(self.started),
            wall: WallTime(wall.0.min(self.end.load(Ordering::Acquire))),
        }
    }
}

/// The machine's wall clock.
pub fn wall_now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.unwrap_or_default().as_millis();
    WallTime(u64::try_from(ms).unwrap_or(u64::MAX))
}

fn mono_since(started: Instant) -> MonoTime {
    MonoTime(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX))
}
