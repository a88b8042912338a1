//! Where a command writes that has work to do whoever reads of it.
//!
//! Invariant: a reader that goes away stops no work and hides no failure; that he went is said behind the work.

use std::io::{self, Write};

use super::Exit;

/// Writes until that fails once, and then nowhere.
pub(crate) struct Finishing<'a> {
    out: &'a mut dyn Write,
    failed: Option<io::Error>,
}

impl<'a> Finishing<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, failed: None }
    }

    /// How the command ends that came to this end.
    ///
    /// # Errors
    /// If it did all that it was to do, and could not write that.
    pub(crate) fn finish(self, exit: Exit) -> anyhow::Result<Exit> {
        match self.failed.filter(|_| exit == Exit::Success) {
            Some(error) => Err(error.into()),
            None => Ok(exit),
        }
    }

    /// What an attempt to write gives, or this where that fails or has failed.
    fn or<T>(
        &mut self,
        otherwise: T,
        attempt: impl FnOnce(&mut dyn Write) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.failed.is_some() {
            return Ok(otherwise);
        }
        match attempt(self.out) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.failed = Some(error);
                Ok(otherwise)
            }
            other => other,
        }
    }
}

impl Write for Finishing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.or(bytes.len(), |out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.or((), |out| out.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader who takes so many bytes and goes.
    struct Head(usize);

    impl Write for Head {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_goes_away_stops_no_work_and_hides_no_failure() -> anyhow::Result<()> {
        let ended = |takes: usize, exit: Exit| {
            let mut head = Head(takes);
            let mut out = Finishing::new(&mut head);
            for line in 0..3 {
                writeln!(out, "line {line}").and_then(|()| out.flush())?;
            }
            out.finish(exit)
        };
        assert_eq!(ended(21, Exit::Success)?, Exit::Success);
        assert_eq!(ended(7, Exit::Failure)?, Exit::Failure);
        let gone = ended(7, Exit::Success).expect_err("who reads is gone");
        let gone = gone.downcast_ref().map(io::Error::kind);
        assert_eq!(gone, Some(io::ErrorKind::BrokenPipe));
        Ok(())
    }
}
