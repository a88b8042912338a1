//! Handing records to the record log, with whom they are charged to.
//!
//! Invariant: where no log is kept this succeeds and does nothing. Of a job that was taken back the log has the record
//! that was taken back, until another one counts; then it has that one, whatever feeds repeat.

use fairmesh_records::BatchRecord;
use fairmesh_site::Words;

use super::Shared;
use crate::driver::Gone;
use crate::record_log::{self, Entry, LogError, Run};

/// Gives runs the keys under which another source has reported them. `runs` says of a record which run it is of, and
/// when that began. A log that cannot be read stops nothing: the records keep their keys.
pub(super) async fn settle_keys<R: Send + 'static>(
    shared: &Shared,
    mut records: Vec<R>,
    run: fn(&mut R) -> Option<Run<'_>>,
) -> Result<Vec<R>, Gone> {
    let Some(log) = shared.options.records.clone() else {
        return Ok(records);
    };
    let settled = tokio::task::spawn_blocking(move || {
        let settled = log.reader().and_then(|connection| {
            record_log::settle_keys(&connection, records.iter_mut().filter_map(run))
        });
        if let Err(error) = settled {
            tracing::warn!(%error, "whether another source has reported the same jobs is not known");
        }
        records
    });
    settled.await.map_err(|_| Gone)
}

/// Logs records, each with whether it counts its job again, if that was taken back; durable when this returns. `full` says
/// that they are the batch system's own.
pub(super) async fn keep(
    shared: &Shared,
    mut records: Vec<(BatchRecord, Option<bool>)>,
    full: bool,
) -> Result<u64, LogError> {
    let Some(log) = &shared.options.records else {
        return Ok(0);
    };
    let count = u64::try_from(records.len()).unwrap_or(u64::MAX);
    records.retain(|(_, again)| *again != Some(false));
    if records.is_empty() {
        return Ok(0);
    }
    let view = shared.node().view();
    let entries = {
        let settings = shared.options.settings.borrow();
        let entry = |(record, again): (BatchRecord, Option<bool>)| {
            let account = view.account(Words {
                queue: record.queue.as_deref(),
                qos: record.qos.as_deref(),
                ..Words::from(&record.origin)
            });
            let vo = account.as_ref().and_then(|account| account.vo);
            Entry {
                vo: vo.map(|vo| settings.vos.get(&vo).cloned().unwrap_or(vo.to_string())),
                path: account.map(|account| account.path.to_string()),
                replaces: again.is_some(),
                record,
                full,
            }
        };
        records.into_iter().map(entry).collect()
    };
    log.append(entries).await?;
    Ok(count)
}
