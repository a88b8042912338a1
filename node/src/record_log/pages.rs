//! Records in the order in which their jobs ended, page by page: for what reads the whole log.
//!
//! Invariant: a page goes on behind the last record of the one before, whatever is written meanwhile, and each takes a
//! connection of its own, so the write-ahead log can start over between two.

use fairmesh_model::WallTime;
use fairmesh_records::BatchRecord;
use rusqlite::{Connection, params};

use super::{LogError, row, signed};

/// A record, and what the log says of whom it is charged to.
#[derive(Debug, Clone)]
pub struct Logged {
    /// The record as the batch system reported it.
    pub record: BatchRecord,
    /// The VO, as in [`Entry`](super::Entry).
    pub vo: Option<String>,
    /// The path of the charged account; `None` if no rule matched.
    pub path: Option<String>,
    /// Whether the record is the batch system's own.
    pub full: bool,
}

/// Where a page ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    moment: i64,
    id: i64,
}

/// Records behind a place, `most` of them, of jobs that ended at or after `since` (or began then, if they have not
/// ended), and where they end; fewer than `most` where there are no more. Those of a later release are left out.
/// Blocks on the disk.
///
/// # Errors
/// If the log cannot be read.
pub fn page(
    connection: &Connection,
    since: WallTime,
    after: Option<Place>,
    most: usize,
) -> Result<(Vec<Logged>, Option<Place>), LogError> {
    let query = "SELECT moment, id, record, vo, path, is_full FROM records \
                 WHERE moment >= ?1 AND (moment, id) > (?2, ?3) ORDER BY moment, id LIMIT ?4";
    let mut statement = connection.prepare(query)?;
    let from = after.unwrap_or(Place {
        moment: i64::MIN,
        id: i64::MIN,
    });
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![signed(since.0), from.moment, from.id, limit])?;
    let (mut page, mut end, mut read) = (Vec::new(), None, 0);
    while let Some(found) = rows.next()? {
        read += 1;
        end = Some(Place {
            moment: found.get(0)?,
            id: found.get(1)?,
        });
        let text: Option<String> = found.get(2)?;
        if let Some(record) = text.as_deref().and_then(row::record) {
            page.push(Logged {
                record,
                vo: found.get(3)?,
                path: found.get(4)?,
                full: found.get(5)?,
            });
        }
    }
    Ok((page, end.filter(|_| read == most)))
}
