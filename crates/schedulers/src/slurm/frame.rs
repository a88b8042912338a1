//! Lists of Slurm's to which no user can add a line.
//!
//! Slurm prints the line ends in a job's name as they are, and those in an account where there is no
//! database: a list then has a line more, of a job that never was, for which another would pay. So
//! columns are separated by a mark that is drawn anew for each call; what was chosen before it cannot hold
//! it, and lines are told by the number of marks alone.
//!
//! Invariant: each row is what Slurm printed of one job. Deliberately not here: what the columns mean;
//! files, where Slurm draws no mark (`docs/slurm.md` says what that costs).

use fairmesh_model::clean;

use crate::command::{CommandError, Commands};

/// What stands between columns in one list.
#[derive(Debug, Clone)]
pub(super) struct Mark(String);

impl Mark {
    /// Draws one.
    pub(super) fn draw() -> Result<Self, CommandError> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|why| CommandError::NoRandomness(why.to_string()))?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        // A digit behind the colon would be the column's width.
        Ok(Self(format!("|{digits}|")))
    }

    /// The mark.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// The columns of all rows of a list in which it stands behind each.
    fn columns<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let mut columns: Vec<&str> = text.split(self.text()).map(str::trim).collect();
        if columns.last() == Some(&"") {
            columns.pop();
        }
        columns
    }

    /// The lines of a list in which it stands between columns, and a line end behind the last of them,
    /// which is the only one that may hold line ends: with `|` between columns again. Also gives the
    /// lines that are none.
    pub(super) fn lines(&self, text: &str, columns: usize) -> (String, Vec<String>) {
        let (mut lines, mut bad) = (String::new(), Vec::new());
        let mut row: Vec<&str> = Vec::new();
        for word in text.split(self.text()) {
            row.push(word);
            if row.len() < columns {
                continue;
            }
            // The last column, and the first of the next row behind it.
            let (last, next) = word.rsplit_once('\n').unwrap_or((word, ""));
            row.pop();
            let is_plain = row.iter().all(|word| !word.contains(['|', '\n']));
            let line = format!("{}|{}", row.join("|"), last.replace('\n', " "));
            match is_plain {
                true => lines.push_str(&format!("{line}\n")),
                false => bad.push(clean(&line)),
            }
            row.clear();
            row.push(next);
        }
        if row.iter().any(|word| !word.trim().is_empty()) {
            bad.push(clean(&row.join("|")));
        }
        (lines, bad)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark("|1f|".to_owned())
    }

    #[test]
    fn marks_differ() -> Result<(), CommandError> {
        assert_ne!(Mark::draw()?.text(), Mark::draw()?.text());
        Ok(())
    }

    #[test]
    fn a_line_end_in_an_account_makes_no_row() {
        let list = "5|1f|x\n777|vo1|mallory|1f|ann|1f|\n6|1f|vo1|1f|bob|1f|\n";
        let columns = mark().columns(list);
        let rows: Vec<&[&str]> = columns.chunks(3).collect();
        assert_eq!(
            rows,
            [["5", "x\n777|vo1|mallory", "ann"], ["6", "vo1", "bob"]]
        );
        assert!(mark().columns("").is_empty());
        assert_eq!(mark().columns("5|1f|vo1|1f|"), ["5", "vo1"]);
    }

    #[test]
    fn a_line_end_in_a_name_makes_no_line() {
        let list =
            "Id|1f|User|1f|Name\n5|1f|ann|1f|x\n777|mallory|y\n\n6|1f|bob|1f|\n7|1f|a|b|1f|z\n";
        let (lines, bad) = mark().lines(list, 3);
        assert_eq!(lines, "Id|User|Name\n5|ann|x 777|mallory|y \n6|bob|\n");
        assert_eq!(bad, ["7|a|b|z"]);
        assert_eq!(mark().lines("", 3), (String::new(), Vec::new()));
        let (lines, bad) = mark().lines("5|ann|x\n", 3);
        assert_eq!((lines.as_str(), bad.len()), ("", 1));
    }
}
