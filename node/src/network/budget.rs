//! What one peer may cost this node: messages, requests, bytes and protocol violations.
//!
//! Each budget is a token bucket. A peer whose bucket is empty is *throttled*: its message is dropped before its
//! signature is checked, and anti-entropy brings the content later. A peer that is throttled again and again, or
//! violates the protocol, is *barred*: disconnected and refused for a while, longer each time.
//!
//! Invariant: an honest peer at the limits of the protocol (it forwards the heads of thousands of sites, or pulls
//! everything as a newcomer) is never barred. What a peer can cost does not depend on other peers.
//!
//! Deliberately not here: connections, streams and memory, which libp2p bounds (`behaviour`), and what makes a message
//! invalid (the consumer decides that).

use std::time::{Duration, Instant};

/// Gossip messages a second, each of which costs a check of a signature or two: what 30,000 sites that
/// sign once a minute send, if one peer passes all of it on.
const MESSAGES: Pace = Pace {
    per_s: 500,
    burst: 5_000,
};

/// Requests a second: a newcomer has four under way on a link of ten milliseconds.
const REQUESTS: Pace = Pace {
    per_s: 400,
    burst: 2_000,
};

/// Bytes a second of messages and requests, unpacked.
const BYTES: Pace = Pace {
    per_s: 4 << 20,
    burst: 32 << 20,
};

/// Bytes a second of answers, unpacked: each is gathered, encoded and packed for the peer, at some 200 MiB a second.
/// A newcomer reads twenty in a second, and may have a VO of twenty-five million cells at once.
const ANSWERS: Pace = Pace {
    per_s: 32 << 20,
    burst: 256 << 20,
};

/// Protocol violations: messages that the consumer rejects, frames that are too long. An honest peer of the same
/// release sends none; the burst leaves room for differences between releases.
const VIOLATIONS: Pace = Pace {
    per_s: 1,
    burst: 60,
};

/// Streams that a peer does not end in time, in tenths: thirty at once, six in a minute. A link that breaks in the
/// middle of answers leaves eight.
const SLOW: Pace = Pace {
    per_s: 1,
    burst: 300,
};

/// What one of these costs.
const SLOW_COST: u64 = 10;

/// Times that a peer may be throttled before it is barred: two seconds of a flood.
const THROTTLED: Pace = Pace {
    per_s: 10,
    burst: 1_000,
};

/// How long a peer is barred first, and at most; it doubles each time, until it has behaved for that long.
const BARRED_FIRST: Duration = Duration::from_secs(30);
const BARRED_MAX: Duration = Duration::from_secs(3_600);

/// A bucket's size and how fast it fills.
#[derive(Debug, Clone, Copy)]
struct Pace {
    per_s: u64,
    burst: u64,
}

/// What has been used of a pace: nothing is left at `burst`.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    pace: Pace,
    /// Used amount in thousandths, so that a bucket fills by less than one a millisecond.
    used: u64,
    at: Instant,
}

/// What a peer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cost {
    /// It sends gossip of so many bytes.
    Message(usize),
    /// It asks, in so many bytes.
    Request(usize),
    /// It is answered, in so many bytes.
    Answer(usize),
    /// It violates the protocol.
    Violation,
    /// It sends a request, or takes an answer, too slowly.
    Slow,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charged {
    Within,
    /// It is dropped: the peer has used up its budget of these.
    Throttled(&'static str),
    /// The peer is to be disconnected, and let in again after that time.
    Barred(&'static str, Duration),
}

/// The budget of one peer.
#[derive(Debug)]
pub(crate) struct Budget {
    messages: Bucket,
    requests: Bucket,
    bytes: Bucket,
    answers: Bucket,
    violations: Bucket,
    slow: Bucket,
    throttled: Bucket,
    /// For how long it is barred the next time, and when the last time ended.
    next_bar: Duration,
    barred_until: Option<Instant>,
}

impl Bucket {
    fn new(pace: Pace, at: Instant) -> Self {
        Self { pace, used: 0, at }
    }

    /// Takes so much out; false where it does not hold that much.
    fn take(&mut self, now: Instant, amount: u64) -> bool {
        self.fill(now);
        let used = self.used.saturating_add(amount.saturating_mul(1_000));
        let fits = used <= self.pace.burst * 1_000;
        if fits {
            self.used = used;
        }
        fits
    }

    /// Takes so much out, whether it holds that much or not.
    fn owe(&mut self, now: Instant, amount: u64) {
        self.fill(now);
        self.used = self.used.saturating_add(amount.saturating_mul(1_000));
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        let filled = passed.saturating_mul(self.pace.per_s);
        self.used = self.used.saturating_sub(filled);
        self.at = now.max(self.at);
    }
}

impl Budget {
    /// The budget of a peer that has used nothing.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            messages: Bucket::new(MESSAGES, now),
            requests: Bucket::new(REQUESTS, now),
            bytes: Bucket::new(BYTES, now),
            answers: Bucket::new(ANSWERS, now),
            violations: Bucket::new(VIOLATIONS, now),
            slow: Bucket::new(SLOW, now),
            throttled: Bucket::new(THROTTLED, now),
            next_bar: BARRED_FIRST,
            barred_until: None,
        }
    }

    /// Charges what the peer does.
    pub(crate) fn charge(&mut self, now: Instant, cost: Cost) -> Charged {
        let (fits, what, bytes) = match cost {
            Cost::Message(bytes) => (self.messages.take(now, 1), "messages", bytes),
            // What it was answered is known afterwards: before that is paid off, nothing more is.
            Cost::Request(_) if !self.answers.take(now, 0) => (false, "bytes of answers", 0),
            Cost::Request(bytes) => (self.requests.take(now, 1), "requests", bytes),
            Cost::Answer(bytes) => {
                self.answers.owe(now, bytes as u64);
                return Charged::Within;
            }
            Cost::Violation if self.violations.take(now, 1) => return Charged::Within,
            Cost::Violation => return self.bar(now, "messages that are false"),
            Cost::Slow if self.slow.take(now, SLOW_COST) => return Charged::Within,
            Cost::Slow => return self.bar(now, "streams that it does not end"),
        };
        let what = match fits {
            true if self.bytes.take(now, bytes as u64) => return Charged::Within,
            true => "bytes",
            false => what,
        };
        if self.throttled.take(now, 1) {
            Charged::Throttled(what)
        } else {
            self.bar(now, what)
        }
    }

    fn bar(&mut self, now: Instant, what: &'static str) -> Charged {
        let has_behaved = self
            .barred_until
            .is_some_and(|until| now >= until + self.next_bar);
        let time = if has_behaved {
            BARRED_FIRST
        } else {
            self.next_bar
        };
        let until = now + time;
        // What it has used up is forgiven with the time.
        *self = Self::new(until);
        self.next_bar = (time * 2).min(BARRED_MAX);
        self.barred_until = Some(until);
        Charged::Barred(what, time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_fits_and_a_flood_is_throttled_and_then_barred_longer_each_time() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        for _ in 0..REQUESTS.burst {
            assert_eq!(budget.charge(start, Cost::Request(1_000)), Charged::Within);
        }
        let throttled = Charged::Throttled("requests");
        assert_eq!(budget.charge(start, Cost::Request(1_000)), throttled);
        // Others go on: gossip has a bucket of its own.
        assert_eq!(budget.charge(start, Cost::Message(1_000)), Charged::Within);
        let later = start + Duration::from_secs(1);
        for _ in 0..REQUESTS.per_s {
            assert_eq!(budget.charge(later, Cost::Request(0)), Charged::Within);
        }
        let mut flood = |from: Instant| {
            let mut all = (0..100_000).map(|_| budget.charge(from, Cost::Request(0)));
            all.find(|charged| matches!(charged, Charged::Barred(..)))
        };
        let barred = |time| Some(Charged::Barred("requests", time));
        assert_eq!(flood(later), barred(BARRED_FIRST));
        let again = later + BARRED_FIRST;
        assert_eq!(flood(again), barred(BARRED_FIRST * 2));
        let behaved = again + BARRED_MAX * 4;
        assert_eq!(flood(behaved), barred(BARRED_FIRST));
    }

    #[test]
    fn bytes_count_together_and_violations_bar_at_once() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let half = usize::try_from(BYTES.burst / 2).expect("small");
        assert_eq!(budget.charge(start, Cost::Message(half)), Charged::Within);
        assert_eq!(budget.charge(start, Cost::Request(half)), Charged::Within);
        let throttled = Charged::Throttled("bytes");
        assert_eq!(budget.charge(start, Cost::Message(1)), throttled);
        for _ in 0..VIOLATIONS.burst {
            assert_eq!(budget.charge(start, Cost::Violation), Charged::Within);
        }
        let barred = budget.charge(start, Cost::Violation);
        assert_eq!(
            barred,
            Charged::Barred("messages that are false", BARRED_FIRST)
        );
    }

    #[test]
    fn who_has_been_answered_much_asks_again_when_that_is_paid_off() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let answer = usize::try_from(ANSWERS.per_s).expect("small");
        for _ in 0..9 {
            assert_eq!(budget.charge(start, Cost::Request(60)), Charged::Within);
            assert_eq!(budget.charge(start, Cost::Answer(answer)), Charged::Within);
        }
        let throttled = Charged::Throttled("bytes of answers");
        assert_eq!(budget.charge(start, Cost::Request(60)), throttled);
        assert_eq!(budget.charge(start, Cost::Message(60)), Charged::Within);
        let later = start + Duration::from_secs(1);
        assert_eq!(budget.charge(later, Cost::Request(60)), Charged::Within);
    }

    #[test]
    fn who_sends_at_the_limits_of_the_protocol_is_never_throttled() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        for ms in (0..60_000u64).step_by(10) {
            let now = start + Duration::from_millis(ms);
            for cost in [
                Cost::Message(2_000),
                Cost::Message(2_000),
                Cost::Request(200),
            ] {
                assert_eq!(budget.charge(now, cost), Charged::Within);
            }
        }
    }
}
