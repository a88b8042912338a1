use std::sync::{Condvar, MutexGuard};

use super::*;

/// What standard error may be.
#[derive(Debug, Default)]
struct Disk {
    written: Vec<u8>,
    /// Bytes that still fit; none is a full disk.
    room: usize,
    is_stuck: bool,
}

#[derive(Debug, Clone, Default)]
struct Reader(Arc<(Mutex<Disk>, Condvar)>);

impl Reader {
    fn of_room(room: usize) -> Self {
        let reader = Self::default();
        reader.lock().room = room;
        reader
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.0.lock().expect("no panic")
    }

    fn change(&self, change: impl FnOnce(&mut Disk)) {
        change(&mut self.lock());
        self.0.1.notify_all();
    }

    fn text(&self) -> String {
        String::from_utf8(self.lock().written.clone()).expect("UTF-8")
    }
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wait = self.0.1.wait_while(self.lock(), |disk| disk.is_stuck);
        let mut disk = wait.expect("no panic");
        let bytes = &bytes[..bytes.len().min(disk.room)];
        if bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.room -= bytes.len();
        disk.written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn log(reader: &Reader) -> Log {
    Log::start(reader.clone(), "", RETRY).expect("a thread")
}

fn push(log: &Log, line: &str) {
    log.push(format!("{line}\n").into_bytes());
}

/// Waits for the thread, however long it takes.
fn settle(log: &Log) {
    log.finish(Duration::from_secs(600));
}

#[test]
fn a_full_disk_loses_lines_and_the_log_reports_them_when_there_is_room() {
    let reader = Reader::of_room(8);
    let log = log(&reader);
    for line in ["first", "second", "third"] {
        push(&log, line);
    }
    settle(&log);
    assert_eq!(
        (log.losses.unreported(), reader.text()),
        (2, "first\nse".to_owned())
    );
    reader.change(|disk| disk.room = 1_000);
    push(&log, "fourth");
    settle(&log);
    let text = reader.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[1], lines[3]), ("se", "fourth"), "{text}");
    assert!(
        lines[2].ends_with("WARN fairmesh::log: 2 lines of this log are lost: no storage space"),
        "{text}"
    );
    assert_eq!(log.losses.unreported(), 0);
}

#[test]
fn a_log_without_new_lines_reports_what_it_lost_when_there_is_room() {
    let reader = Reader::of_room(0);
    let log = Log::start(reader.clone(), "", Duration::from_millis(1)).expect("a thread");
    push(&log, "first");
    settle(&log);
    assert_eq!(log.losses.unreported(), 1);
    reader.change(|disk| disk.room = 1_000);
    while log.losses.unreported() > 0 {
        std::thread::yield_now();
    }
    let text = reader.text();
    assert!(text.contains("1 line of this log is lost"), "{text}");
}

#[test]
fn a_reader_that_is_stuck_holds_up_nobody() {
    let reader = Reader::of_room(1 << 20);
    reader.change(|disk| disk.is_stuck = true);
    let log = log(&reader);
    // One is in the thread's hands.
    for line in 0..WAITING_LINES_MAX + 11 {
        push(&log, &line.to_string());
    }
    log.finish(Duration::ZERO);
    assert!((10..=11).contains(&log.losses.unreported()));
    reader.change(|disk| disk.is_stuck = false);
    while log.losses.unreported() > 0 {
        push(&log, "later");
        settle(&log);
    }
    let text = reader.text();
    assert!(
        text.contains("lines of this log are lost: its reader is too slow\n"),
        "{text}"
    );
}
