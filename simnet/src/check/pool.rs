//! Many seeds on all cores.
//!
//! Invariant: outcomes come in the order of their seeds, whichever thread has run them; so what is
//! printed does not depend on how many there are. Deliberately not here: what one seed does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Runs `job` for each of `count` indexes on `threads` threads and hands the results on in order.
/// Stops early once `each` says so by returning false.
pub fn in_order<T: Send>(
    count: usize,
    threads: usize,
    job: impl Fn(usize) -> T + Sync,
    mut each: impl FnMut(usize, T) -> bool,
) {
    let next = AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (sender, next, is_over, job) = (sender.clone(), &next, &is_over, &job);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    // The receiver goes first only where nobody wants more.
                    if sender.send((index, job(index))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut wanted = 0;
        for (index, result) in &receiver {
            early.insert(index, result);
            while let Some(result) = early.remove(&wanted) {
                let goes_on = each(wanted, result);
                wanted += 1;
                if !goes_on {
                    is_over.store(true, Ordering::Relaxed);
                    return;
                }
            }
        }
    });
}

/// Threads that the machine runs at a time.
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_can_be_cut_short() {
        let mut seen = Vec::new();
        in_order(
            50,
            3,
            |index| index * 2,
            |index, double| {
                seen.push((index, double));
                index < 30
            },
        );
        let expected: Vec<_> = (0..=30).map(|index| (index, index * 2)).collect();
        assert_eq!(seen, expected);
    }
}
