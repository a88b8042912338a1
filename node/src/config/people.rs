//! `people = "people.csv"`: the map of people, one row for each, read whole or not at all.
//!
//! The first row names the columns: `user` or `subject` or both, `path`, and `vo` where a person's account is of one.
//! RFC 4180 with commas; a line that begins with `#` is a comment.
//!
//! Invariant: an error names file, line and column. Its first line names no person: it is shown to everybody who may
//! ask the node for its state. Deliberately not here: what a row means (`fairmesh_site::People`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use csv::{ReaderBuilder, StringRecord, Trim};
use fairmesh_model::record::fit;
use fairmesh_model::{AccountPath, VoId};
use fairmesh_site::{Account, People, Person, Taken};

use super::names::vo_of;
use super::text::{FileError, Source};

const HELP: &str =
    "the first row names the columns: user,subject,vo,path (user or subject, and path, are needed)";

/// What a file may begin with.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Where each column stands.
#[derive(Debug, Default)]
struct Columns {
    user: Option<usize>,
    subject: Option<usize>,
    vo: Option<usize>,
    path: Option<usize>,
}

/// Reads the people of a file.
pub(super) fn read(source: Source<'_>, vos: &BTreeMap<String, VoId>) -> Result<People, FileError> {
    let text = source.text;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let source = Source { text, ..source };
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .comment(Some(b'#'))
        .trim(Trim::All)
        .flexible(true)
        .from_reader(text.as_bytes());
    let (mut people, mut row) = (People::default(), StringRecord::new());
    let (mut columns, mut width) = (None, 0);
    // Where each person's row begins.
    let mut places = Vec::new();
    loop {
        let before = byte(reader.position());
        match reader.read_record(&mut row) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                return Err(source.error(Some(before..before + 1), None, error.to_string()));
            }
        }
        let row = Row {
            source,
            cells: &row,
            start: row_start(text, before),
        };
        let Some(columns) = &columns else {
            (columns, width) = (Some(row.columns()?), row.cells.len());
            continue;
        };
        if row.cells.len() != width {
            let problem = format!("{} cells, where the first row has {width}", row.cells.len());
            return Err(row.wrong(width.min(row.cells.len()) - 1, None, problem));
        }
        let person = row.person(columns, vos)?;
        people.insert(person).map_err(|taken| {
            let line = source.line_of(places[taken.by]);
            row.taken(columns, taken, line)
        })?;
        places.push(row.start);
    }
    match columns {
        Some(_) => Ok(people),
        None => Err(source.error(None, None, "no row").with_help(HELP)),
    }
}

/// A row in the text.
struct Row<'a> {
    source: Source<'a>,
    cells: &'a StringRecord,
    start: usize,
}

impl Row<'_> {
    fn columns(&self) -> Result<Columns, FileError> {
        let mut columns = Columns::default();
        for (at, name) in self.cells.iter().enumerate() {
            let column = match name.to_ascii_lowercase().as_str() {
                "user" => &mut columns.user,
                "subject" => &mut columns.subject,
                "vo" => &mut columns.vo,
                "path" => &mut columns.path,
                _ => {
                    let problem = format!("there is no column `{}`", name.escape_debug());
                    return Err(self.wrong(at, None, problem).with_help(HELP));
                }
            };
            if column.replace(at).is_some() {
                let problem = format!("the column `{name}` is there twice");
                return Err(self.wrong(at, None, problem).with_help(HELP));
            }
        }
        let is_known = columns.user.is_some() || columns.subject.is_some();
        let missing = match columns.path {
            None => "no column `path`",
            Some(_) if !is_known => "neither a column `user` nor a column `subject`",
            Some(_) => return Ok(columns),
        };
        Err(self.wrong(0, None, missing).with_help(HELP))
    }

    fn person(&self, columns: &Columns, vos: &BTreeMap<String, VoId>) -> Result<Person, FileError> {
        let user = self.name(columns.user, "user")?;
        let subject = self.name(columns.subject, "subject")?;
        if user.is_none() && subject.is_none() {
            let at = columns.user.or(columns.subject).unwrap_or_default();
            return Err(self.wrong(at, None, "a person without a user and without a subject"));
        }
        let vo = match self.cell(columns.vo) {
            None => None,
            Some((at, alias)) => Some(vo_of(self.source, vos, alias, Some(self.span(at)), "vo")?),
        };
        let Some((at, path)) = self.cell(columns.path) else {
            let at = columns.path.unwrap_or_default();
            return Err(self.wrong(at, Some("path"), "a person without a path"));
        };
        if path.contains(['{', '}']) {
            let problem = "a template, and each person has a path of their own";
            let error = self.wrong(at, Some("path"), problem);
            return Err(error.with_help("templates belong to [[identity]] rules"));
        }
        let path = AccountPath::parse(path).map_err(|_| {
            let error = self.wrong(at, Some("path"), "not an account path");
            error.with_help("write a path such as /P-B1/U-B11")
        })?;
        Ok(Person {
            user,
            subject,
            account: Account { vo, path },
        })
    }

    /// A name that a job can have.
    fn name(
        &self,
        column: Option<usize>,
        key: &'static str,
    ) -> Result<Option<Arc<str>>, FileError> {
        match self.cell(column) {
            None => Ok(None),
            Some((_, name)) if fit(name) == name => Ok(Some(name.into())),
            Some((at, _)) => {
                let problem =
                    "not a name that a job can have: it is too long, or a character is not visible";
                let error = self.wrong(at, Some(key), problem);
                Err(error.with_help("is a quotation mark missing?"))
            }
        }
    }

    fn taken(&self, columns: &Columns, taken: Taken, line: usize) -> FileError {
        let at = match taken.column {
            "user" => columns.user,
            _ => columns.subject,
        };
        let problem = format!("the row of line {line} has the same {}", taken.column);
        let error = self.wrong(at.unwrap_or_default(), Some(taken.column), problem);
        error
            .with_help("keep one row; a user with several accounts is mapped by [[identity]] rules")
    }

    /// A cell that is not empty, and where it stands.
    fn cell(&self, column: Option<usize>) -> Option<(usize, &str)> {
        let at = column?;
        let cell = self.cells.get(at)?;
        (!cell.is_empty()).then_some((at, cell))
    }

    fn wrong(&self, at: usize, key: Option<&str>, problem: impl Into<String>) -> FileError {
        self.source.error(Some(self.span(at)), key, problem)
    }

    /// Where a cell stands in the text.
    fn span(&self, wanted: usize) -> Range<usize> {
        let text = &self.source.text[self.start..];
        let (mut at, mut begin, mut is_quoted) = (0, 0, false);
        let mut end = text.len();
        for (place, c) in text.char_indices() {
            match c {
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted && at < wanted => (at, begin) = (at + 1, place + 1),
                ',' | '\n' | '\r' if !is_quoted => {
                    end = place;
                    break;
                }
                _ => {}
            }
        }
        self.start + begin..self.start + end.max(begin)
    }
}

/// Where the row begins that is read next, behind comments and empty lines.
fn row_start(text: &str, mut at: usize) -> usize {
    for line in text[at..].split_inclusive('\n') {
        if !line.starts_with('#') && !line.trim_end_matches(['\r', '\n']).is_empty() {
            break;
        }
        at += line.len();
    }
    at
}

fn byte(position: &csv::Position) -> usize {
    usize::try_from(position.byte()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
