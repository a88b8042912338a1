//! Claims that were computed, and tables as text.
//!
//! Invariant: whether a claim holds is said by what was measured in the same run of the command.

use std::path::Path;

use anyhow::Context as _;

/// Something that must hold, or is only watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What is claimed.
    pub what: String,
    /// Whether it must hold.
    pub required: bool,
    /// Whether it does.
    pub holds: bool,
    /// The numbers.
    pub numbers: String,
}

/// Rows of cells below a head.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Names of columns.
    pub head: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

impl Claim {
    /// One that must hold.
    pub fn required(what: impl Into<String>, holds: bool, numbers: String) -> Self {
        Self {
            what: what.into(),
            required: true,
            holds,
            numbers,
        }
    }

    /// One that is only watched.
    pub fn watched(what: impl Into<String>, holds: bool, numbers: String) -> Self {
        Self {
            required: false,
            ..Self::required(what, holds, numbers)
        }
    }
}

impl Table {
    /// A table with these columns.
    pub fn new<T: Into<String>>(head: impl IntoIterator<Item = T>) -> Self {
        Self {
            head: head.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|{}\n", "---|".repeat(self.head.len()));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&self.head) + &rule + &rows
    }

    /// Writes `name.csv` into `folder`.
    ///
    /// # Errors
    /// That it could not be written.
    pub fn write(&self, folder: &Path, name: &str) -> anyhow::Result<()> {
        let path = folder.join(format!("{name}.csv"));
        let mut table = csv::Writer::from_writer(Vec::new());
        table.write_record(&self.head)?;
        for row in &self.rows {
            table.write_record(row)?;
        }
        let bytes = table
            .into_inner()
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Claims as Markdown.
pub fn claims(claims: &[Claim]) -> String {
    let mut table = Table::new(["claim", "", "by which numbers"]);
    for claim in claims {
        let verdict = if claim.holds {
            "holds"
        } else {
            "does not hold"
        };
        let kind = if claim.required {
            ""
        } else {
            " (not required)"
        };
        table.row([
            claim.what.clone(),
            format!("{verdict}{kind}"),
            claim.numbers.clone(),
        ]);
    }
    table.markdown()
}
