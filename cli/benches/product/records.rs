//! Job records as a feed sends them, one JSON object a line.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::node::pairs;

/// As many ended jobs of the tree's users, numbered from `first`.
pub(crate) fn lines(first: u64, count: u64) -> Vec<u8> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock");
    let end = since.as_millis() - 60_000;
    let start = end - 1_000;
    let (pairs, mut text) = (pairs(), String::new());
    let of = u64::try_from(pairs.len()).expect("fits");
    for job in first..first + count {
        let user = job.wrapping_mul(0x9e37_79b9_7f4a_7c15) % of;
        let (user, account) = &pairs[usize::try_from(user).expect("fits")];
        let _ = writeln!(
            text,
            "{{\"cluster\":\"bench\",\"job\":\"{job}\",\"user\":\"{user}\",\"account\":\"{account}\",\
             \"start_ms\":{start},\"end_ms\":{end},\"cores\":4}}"
        );
    }
    text.into_bytes()
}

/// Whether an answer says that so many were counted.
pub(crate) fn counted(answer: &str, count: u64) -> bool {
    let compact: String = answer.chars().filter(|c| !c.is_whitespace()).collect();
    compact.contains(&format!("\"counted\":{count},"))
        || compact.contains(&format!("\"counted\":{count}}}"))
}
