//! The header line of a list of `sacct`, whatever separates its fields.
//!
//! Invariant: a header names nothing but columns, one of them the job's id. Blanks alone separate nothing: lists of
//! fixed widths cut their fields.

use std::borrow::Cow;
use std::str::FromStr as _;

use strum::{EnumCount, EnumString, IntoStaticStr};

use crate::error::Reason;
use crate::fields;

/// What `sacct -P` puts between two fields, unless `--delimiter` names something else.
const DELIMITER: &str = "|";

/// Columns of which a header has at least one besides the job's id.
const COLUMNS: [&str; 8] = [
    "state",
    "start",
    "end",
    "submit",
    "user",
    "account",
    "elapsed",
    "elapsedraw",
];

/// Fields that users fill as they like.
const FREE_TEXT: [&str; 9] = [
    "jobname",
    "comment",
    "admincomment",
    "systemcomment",
    "submitline",
    "workdir",
    "wckey",
    "constraints",
    "container",
];

/// The columns that are read. A line asks for each of them, so a layout knows their places.
#[derive(Debug, Clone, Copy, EnumCount, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Column {
    JobIdRaw,
    JobId,
    State,
    Cluster,
    ElapsedRaw,
    Elapsed,
    TimelimitRaw,
    Timelimit,
    TotalCpu,
    User,
    Account,
    Group,
    Uid,
    Gid,
    JobName,
    Partition,
    Qos,
    ExitCode,
    Priority,
    NodeList,
    AllocTres,
    ReqTres,
    ConsumedEnergyRaw,
    ConsumedEnergy,
    MaxRss,
    CpuTimeRaw,
    CpuTime,
    ReqMem,
    Submit,
    Eligible,
    Start,
    End,
    Ncpus,
    AllocCpus,
    ReqCpus,
    Nnodes,
    AllocNodes,
    AllocGres,
    ReqGres,
}

/// How the lines of a list are divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Lower-case names, in the order of the line.
    pub(crate) columns: Vec<String>,
    pub(crate) delimiter: String,
    /// Whether each field is in quotation marks, so that it may hold line ends, too.
    pub(crate) is_quoted: bool,
    /// The header line, as [`Self::of_columns`] reads it.
    pub(crate) header: String,
    /// The places of the columns of free text.
    pub(crate) free: Vec<usize>,
    places: [Option<usize>; Column::COUNT],
}

impl Layout {
    fn new(columns: Vec<String>, delimiter: &str, is_quoted: bool) -> Self {
        let header = match is_quoted || delimiter == "," {
            true => format!("\"{}\"", columns.join(&format!("\"{delimiter}\""))),
            false => columns.join(delimiter),
        };
        let (mut free, mut places) = (Vec::new(), [None; Column::COUNT]);
        for (place, column) in columns.iter().enumerate() {
            if let Ok(column) = Column::from_str(column) {
                places[column as usize].get_or_insert(place);
            }
            if FREE_TEXT.contains(&column.as_str()) {
                free.push(place);
            }
        }
        Self {
            columns,
            delimiter: delimiter.to_owned(),
            is_quoted,
            header,
            free,
            places,
        }
    }

    /// Where the list has a column, if it does.
    pub(crate) fn place(&self, column: Column) -> Option<usize> {
        self.places[column as usize]
    }

    /// Of a `--format` with its widths (`jobname%40`), or of the names that [`Self::names`] gave.
    pub(crate) fn of_columns(text: &str, delimiter: Option<&str>) -> Self {
        let plain = |text: &str| {
            let separator = if text.contains('|') { '|' } else { ',' };
            let text = text.trim().trim_end_matches(separator);
            let name = |name: &str| name.split('%').next().unwrap_or("").trim().to_lowercase();
            text.split(separator).map(name).collect()
        };
        // A comma separates the names of any `--format`.
        let known = Self::of_header(text, None);
        let known = known.filter(|layout| layout.is_quoted || layout.delimiter != ",");
        let layout = known.unwrap_or_else(|| Self::new(plain(text), DELIMITER, false));
        match delimiter {
            Some(delimiter) => Self::new(layout.columns, delimiter, layout.is_quoted),
            None => layout,
        }
    }

    /// Of a header line. A job has a number where it names the id, whatever the job is called.
    pub(crate) fn of_header(line: &str, delimiter: Option<&str>) -> Option<Self> {
        let line = line.trim_end();
        let is_quoted = line.starts_with('"');
        let bare = match is_quoted {
            true => Cow::Owned(line.replace('"', "")),
            false => Cow::Borrowed(line),
        };
        let first = bare.find(|c: char| !c.is_ascii_alphabetic());
        let rest = first.map_or("", |first| &bare[first..]);
        if first == Some(0) {
            return None;
        }
        let end = rest
            .find(|c: char| c.is_alphanumeric())
            .unwrap_or(rest.len());
        let found = Some(&rest[..end]).filter(|found| !found.is_empty());
        let delimiter = delimiter.or(found).unwrap_or(DELIMITER);
        if delimiter.bytes().all(|byte| byte == b' ') || is_quoted && delimiter.len() > 1 {
            return None;
        }
        // `sacct -p` ends each line with a separator.
        let names = bare.strip_suffix(delimiter.trim_end());
        let names = names.unwrap_or(&bare);
        let names = || names.split(delimiter);
        let is_name =
            |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
        let is_id = |name: &str| {
            name.eq_ignore_ascii_case("jobid") || name.eq_ignore_ascii_case("jobidraw")
        };
        (names().all(is_name) && names().any(is_id)).then(|| {
            let columns = names().map(str::to_ascii_lowercase).collect();
            Self::new(columns, delimiter, is_quoted)
        })
    }

    /// Whether a quotation mark is open behind a line, as one was before it or not. A mark opens a field at its beginning
    /// only.
    pub(crate) fn is_open_behind(&self, line: &str, was_open: bool) -> bool {
        let delimiter = self.delimiter.bytes().next();
        let (mut is_open, mut begins) = (was_open, !was_open);
        let mut bytes = line.bytes().peekable();
        while let Some(byte) = bytes.next() {
            match (byte, is_open) {
                (b'"', true) if bytes.peek() == Some(&b'"') => {
                    bytes.next();
                }
                (b'"', true) => is_open = false,
                (b'"', false) if begins => is_open = true,
                _ => {}
            }
            begins = !is_open && Some(byte) == delimiter;
        }
        is_open
    }

    /// The fields of a line. Those of a list by commas are quoted as in RFC 4180 where they need be.
    pub(crate) fn split<'a>(&self, line: &'a str) -> Result<Vec<Cow<'a, str>>, Reason> {
        let may_quote = self.is_quoted || self.delimiter == ",";
        let [delimiter] = self.delimiter.as_bytes() else {
            return Ok(line
                .split(self.delimiter.as_str())
                .map(Cow::Borrowed)
                .collect());
        };
        if !may_quote || !line.contains('"') {
            let fields = line.split(char::from(*delimiter));
            return Ok(fields.map(Cow::Borrowed).collect());
        }
        if self.is_open_behind(line, false) {
            return Err(Reason::Shape("a quotation mark is never closed".to_owned()));
        }
        let fields = fields::words(line, *delimiter)?;
        Ok(fields.into_iter().map(Cow::Owned).collect())
    }
}

/// Whether a line is the header of a list of jobs: it has a column besides the job's id that only `sacct` has.
pub(crate) fn begins_sacct(line: &str) -> bool {
    let layout = Layout::of_header(line, None);
    layout.is_some_and(|layout| {
        let mut columns = layout.columns.iter();
        columns.any(|column| COLUMNS.contains(&column.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_shows_what_separates_its_columns() {
        for (line, delimiter, is_quoted) in [
            ("JobID|State|End", "|", false),
            ("JobID|State|End|", "|", false),
            ("JobID;State;End", ";", false),
            ("JobID;|;State;|;End", ";|;", false),
            ("JobID^|^State^|^End", "^|^", false),
            ("JobID\u{2603}State\u{2603}End", "\u{2603}", false),
            ("JobID\tState\tEnd", "\t", false),
            ("JobID,State,End", ",", false),
            ("\"JobID\";\"State\";\"End\"", ";", true),
        ] {
            let layout = Layout::of_header(line, None).expect(line);
            assert_eq!(layout.columns, ["jobid", "state", "end"], "{line}");
            assert_eq!(
                (&*layout.delimiter, layout.is_quoted),
                (delimiter, is_quoted)
            );
            assert!(begins_sacct(line), "{line}");
            // What a cursor keeps of it.
            let again = Layout::of_columns(&layout.header, None);
            assert_eq!(
                (again.columns, again.delimiter),
                (layout.columns, layout.delimiter)
            );
        }
        for line in [
            "JobID State End",
            "JobID  State",
            "1|COMPLETED|End",
            "State|End",
            "JobName|7|JobID",
            "",
        ] {
            assert!(!begins_sacct(line), "{line}");
        }
        let given = Layout::of_header("JobIDxStatexEnd", Some("x")).expect("as given");
        assert_eq!(given.columns, ["jobid", "state", "end"]);
    }

    #[test]
    fn columns_that_are_given_may_have_widths_and_any_delimiter() {
        let layout = Layout::of_columns("jobidraw,State%20", Some(";|;"));
        assert_eq!(layout.columns, ["jobidraw", "state"]);
        assert_eq!(layout.delimiter, ";|;");
        assert_eq!(Layout::of_columns("jobid,state", None).delimiter, "|");
    }
}
