//! What `qstat -xml` says of pending jobs.
//!
//! Invariant: an element is a job's by its place in the document, so nothing that users write is taken for one.

use fairmesh_client::Own;
use fairmesh_model::record::fitting;
use fairmesh_model::{Importance, clean};
use quick_xml::Reader;
use quick_xml::events::Event;

use crate::command::{CommandError, Commands};
use crate::job::{Job, State};

/// A pending job, and its override tickets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) job: Job,
    pub(super) tickets: i64,
}

/// Reads the pending jobs of everybody. Also gives what made no sense.
pub(super) async fn read(commands: &Commands) -> Result<(Vec<Row>, Vec<String>), CommandError> {
    let arguments = ["-u", "*", "-s", "p", "-ext", "-pri", "-xml"];
    Ok(rows(&commands.ask("qstat", &arguments).await?))
}

/// The tasks of an array that wait for different reasons have a row each: those that are not held stand for all.
fn rows(text: &str) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut bad): (Vec<Row>, Vec<String>) = (Vec::new(), Vec::new());
    let mut reader = Reader::from_str(text);
    let (mut row, mut element, mut content) = (None, String::new(), String::new());
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => {
                start.local_name().as_ref().clone_into(&mut element);
                content.clear();
                if element == "job_list" {
                    row = Some(Row::default());
                }
            }
            Ok(Event::Text(text)) => content.push_str(&text),
            Ok(Event::GeneralRef(_)) => content.push('?'),
            Ok(Event::End(end)) if end.local_name().as_ref() == "job_list" => match row.take() {
                Some(row) if row.job.id > 0 && !row.job.user.is_empty() => rows.push(row),
                _ => bad.push("a job without a number or an owner".to_owned()),
            },
            Ok(Event::End(_)) => {
                if let Some(row) = &mut row {
                    take(row, &element, &content);
                }
                content.clear();
            }
            Ok(Event::Eof) => break,
            Ok(_) => {}
            Err(error) => {
                bad.push(clean(&error.to_string()));
                break;
            }
        }
    }
    rows.sort_by_key(|row| (row.job.id, row.job.held));
    rows.dedup_by_key(|row| row.job.id);
    (rows, bad)
}

fn take(row: &mut Row, element: &str, content: &str) {
    let job = &mut row.job;
    let name = || Some(fitting(content)).filter(|name| !name.is_empty());
    match element {
        "JB_job_number" => {
            job.id = content.parse().unwrap_or(0);
            job.target = job.id.to_string();
        }
        "JB_owner" => job.user = fitting(content),
        "JB_project" => job.account = name(),
        "state" => {
            job.held = content.contains(['h', 'E']);
            job.state = State::Pending;
        }
        // A user may only lower it, as he may a nice, and Grid Engine does not look at it any more.
        "JB_priority" => {
            let priority: i64 = content.parse().unwrap_or(0);
            let importance = Importance::of_nice(-priority);
            job.own = Own {
                importance,
                nice: 0,
            };
        }
        "JB_override_tickets" => row.tickets = content.parse().unwrap_or(0),
        "slots" => job.cpus = content.parse().unwrap_or(0),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Grid Engine 8.1.9 printed, without the elements that nobody reads.
    const QSTAT: &str = r#"<?xml version='1.0'?>
<job_info  xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd">
  <queue_info>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>10</JB_job_number>
      <JAT_prio>1.00000</JAT_prio>
      <JB_priority>-30</JB_priority>
      <JB_name>a&lt;JB_owner&gt;bob</JB_name>
      <JB_owner>ann</JB_owner>
      <JB_project>yvonne</JB_project>
      <state>qw</state>
      <JB_submission_time>2026-11-24T23:32:15</JB_submission_time>
      <tickets>1000000000</tickets>
      <JB_override_tickets>1000000000</JB_override_tickets>
      <queue_name></queue_name>
      <slots>2</slots>
    </job_list>
    <job_list state="pending">
      <JB_job_number>24</JB_job_number>
      <JB_priority>0</JB_priority>
      <JB_owner>bob</JB_owner>
      <JB_project></JB_project>
      <state>hqw</state>
      <JB_override_tickets>0</JB_override_tickets>
      <slots>1</slots>
      <tasks>1-3:1</tasks>
    </job_list>
    <job_list state="pending">
      <JB_job_number>24</JB_job_number>
      <JB_owner>bob</JB_owner>
      <state>qw</state>
      <slots>1</slots>
      <tasks>4</tasks>
    </job_list>
  </job_info>
</job_info>
"#;

    #[test]
    fn pending_jobs_of_everybody() {
        let (rows, bad) = rows(QSTAT);
        assert!(bad.is_empty(), "{bad:?}");
        let [one, array] = &rows[..] else {
            panic!("{rows:?}")
        };
        assert_eq!(
            (one.job.id, one.tickets, one.job.cpus),
            (10, 1_000_000_000, 2)
        );
        assert_eq!(
            (&*one.job.user, one.job.account.as_deref()),
            ("ann", Some("yvonne"))
        );
        assert_eq!((one.job.own.importance.get(), one.job.own.nice), (70, 0));
        assert_eq!(
            (&*array.job.target, array.job.held, array.tickets),
            ("24", false, 0)
        );
        assert_eq!(array.job.account, None);
    }

    #[test]
    fn what_is_no_list_is_no_empty_queue() {
        let (rows, bad) = rows("<job_info><job_list></job_list><x></y>");
        assert!(rows.is_empty());
        assert_eq!(bad.len(), 2, "{bad:?}");
    }
}
