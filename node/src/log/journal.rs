//! Lines of the log, each with its level where systemd's journal reads them (sd-daemon(3)): `journalctl -p warning` then
//! shows what somebody should look at.
//!
//! Invariant: elsewhere a line is as `tracing` writes it.

use std::fmt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How lines are written.
pub struct Lines {
    is_for_journal: bool,
    line: Format,
}

impl Lines {
    /// As whoever reads standard error needs them.
    pub fn for_standard_error() -> Self {
        let stat = rustix::fs::fstat(std::io::stderr()).ok();
        let read_by = std::env::var("JOURNAL_STREAM").ok();
        let is_it = stat
            .zip(read_by)
            .is_some_and(|(stat, named)| named == format!("{}:{}", stat.st_dev, stat.st_ino));
        Self::new(is_it)
    }

    /// Whether systemd's journal reads them.
    pub fn is_for_journal(&self) -> bool {
        self.is_for_journal
    }

    fn new(is_for_journal: bool) -> Self {
        Self {
            is_for_journal,
            line: Format::default(),
        }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.is_for_journal {
            write!(writer, "<{}>", priority(*event.metadata().level()))?;
        }
        self.line.format_event(context, writer, event)
    }
}

/// syslog's number of a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_journal_is_told_the_level_of_each_line_and_nobody_else() {
        for is_for_journal in [true, false] {
            let written = Written::default();
            let to = written.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_ansi(false)
                .with_writer(move || to.clone())
                .event_format(Lines::new(is_for_journal))
                .finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::error!("first");
                tracing::warn!("second");
                tracing::info!("third");
            });
            let text = written.0.lock().expect("no panic").clone();
            let text = String::from_utf8(text).expect("UTF-8");
            let levels: Vec<&str> = text.lines().map(|line| &line[..3]).collect();
            let is_told = levels == ["<3>", "<4>", "<6>"];
            assert_eq!(is_told, is_for_journal, "{text}");
            assert!(text.contains("second"), "{text}");
        }
    }
}
