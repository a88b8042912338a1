//! Lists of Slurm's to which no user can add a line.
//!
//! Slurm prints the line ends in a job's name as they are, and those in an account where there is no
//! database: a list then has a line more, of a job that never was, for which another would pay. So
//! columns are separated by a mark, and lines are told by the number of marks alone.
//!
//! Deliberately not here: what the columns mean; files, where Slurm draws no mark (`docs/slurm.md` says what that costs).

use crate::command::{CommandError, Commands};
use crate::mark::Mark;

/// Asks `squeue` for these columns of all jobs that the options name, and hands each row to `take`. Where the
/// last row is not whole it has fewer.
pub(super) async fn squeue(
    commands: &Commands,
    which: &[&str],
    columns: &[&str],
    take: impl FnMut(&[&str]),
) -> Result<(), CommandError> {
    let mark = Mark::draw()?;
    let wanted: Vec<String> = columns
        .iter()
        .map(|column| format!("{column}:{}", mark.text()))
        .collect();
    let wanted = wanted.join(",");
    let mut arguments = vec!["-h", "-a", "-O", &wanted];
    arguments.extend(which);
    let text = commands.ask("squeue", &arguments).await?;
    mark.columns(&text).chunks(columns.len()).for_each(take);
    Ok(())
}
