//! From text to an [`Sla`].
//!
//! Invariant: the first thing wrong is reported where it stands, with its file, line and key.

use std::ops::Range;

use fairmesh_model::path::PathError;
use fairmesh_model::{AccountPath, Share};
use toml_edit::{Document, Item, TableLike};

use super::grant::{Grant, GrantError, Resource, parse_cpus};
use super::{ENTRIES_MAX, Sla, SlaEntry};

const KEYS: &str = "cpu, disk, net, at_most, extensible, mean";

/// Why a document was refused. Nothing changed; its author is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {}{problem}", .key.as_ref().map(|key| format!("`{key}`: ")).unwrap_or_default())]
pub struct SlaError {
    /// The file, as the caller named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// The entry or key at fault.
    pub key: Option<String>,
    /// What is wrong with it.
    pub problem: SlaProblem,
}

/// What is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SlaProblem {
    /// Not TOML, or a key twice.
    #[error("{0} (paths stand in quotes, each of them once)")]
    Syntax(String),
    /// There is no `[sla]`.
    #[error("there is no table [sla]: put the entries below a line `[sla]`")]
    NoTable,
    /// More entries than a document may have.
    #[error("more than {ENTRIES_MAX} entries")]
    TooMany,
    /// A key that means nothing here.
    #[error("unknown key; known here: {known}")]
    UnknownKey {
        /// What may stand here.
        known: &'static str,
    },
    /// The key of an entry is no path.
    #[error("{0}")]
    Path(PathError),
    /// A value of another kind than expected.
    #[error("expected {expected}")]
    WrongType {
        /// What may stand here.
        expected: &'static str,
    },
    /// A share that cannot be read.
    #[error("{0}")]
    Grant(GrantError),
    /// An entry whose parent is not there.
    #[error("there is no entry `{0}` above it: add one, which may be empty ({{}})")]
    NoParent(AccountPath),
    /// Guarantees of siblings that add up to more than the whole.
    #[error(
        "the guarantees below `{above}` add up to {sum} %, which nobody can keep: 100 % at most"
    )]
    Guarantees {
        /// Their parent.
        above: AccountPath,
        /// Percent, rounded up.
        sum: u64,
    },
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

type Read<T> = Result<T, SlaError>;

pub(super) fn parse(text: &str, file: &str) -> Read<Sla> {
    let reader = Reader { file, text };
    let document = Document::parse(text).map_err(|error| {
        let problem = SlaProblem::Syntax(error.message().to_owned());
        reader.error(error.span(), None, problem)
    })?;
    let top = document.as_table();
    if let Some((key, _)) = top.iter().find(|(key, _)| *key != "sla") {
        let known = "[sla]";
        return Err(reader.error(
            span_of(top, key),
            Some(key),
            SlaProblem::UnknownKey { known },
        ));
    }
    let table = top
        .get("sla")
        .ok_or_else(|| reader.error(None, None, SlaProblem::NoTable))?;
    let table = reader.table(table, "sla", "a table [sla] of entries")?;
    if table.len() > ENTRIES_MAX {
        return Err(reader.error(None, None, SlaProblem::TooMany));
    }
    let mut sla = Sla::default();
    for (key, item) in table.iter() {
        let path = AccountPath::parse(key).map_err(|error| {
            reader.error(span_of(table, key), Some(key), SlaProblem::Path(error))
        })?;
        sla.entries.insert(path, reader.entry(key, item)?);
    }
    for path in sla.entries.keys() {
        let parent = path.parent().filter(|parent| !parent.is_root());
        if let Some(parent) = parent.filter(|parent| !sla.entries.contains_key(parent)) {
            let (key, problem) = (path.as_str(), SlaProblem::NoParent(parent));
            return Err(reader.error(span_of(table, key), Some(key), problem));
        }
    }
    if let Some((above, first, sum)) = sla.guaranteed_beyond_all() {
        let sum = sum.div_ceil(u64::from(Share::ONE) / 100);
        let (key, problem) = (first.as_str(), SlaProblem::Guarantees { above, sum });
        return Err(reader.error(span_of(table, key), Some(key), problem));
    }
    Ok(sla)
}

impl Reader<'_> {
    fn entry(&self, key: &str, item: &Item) -> Read<SlaEntry> {
        let fields = self.table(item, key, "{ cpu = \"10%\", … }")?;
        let mut entry = SlaEntry::default();
        for (field, item) in fields.iter() {
            let name = format!("{key}.{field}");
            let grant = |resource| {
                let text =
                    self.text_of(item, &name, "a share in quotes, such as \"10%+ / 30d\"")?;
                let grant = Grant::parse(text, resource);
                grant
                    .map(Some)
                    .map_err(|error| self.error(item.span(), Some(&name), SlaProblem::Grant(error)))
            };
            match field {
                "cpu" => entry.cpu = grant(Resource::Cpu)?,
                "disk" => entry.disk = grant(Resource::Disk)?,
                "net" => entry.net = grant(Resource::Net)?,
                "at_most" => {
                    let text = self.text_of(item, &name, "CPUs in quotes, such as \"150cpus\"")?;
                    let cpus = parse_cpus(text);
                    let cpus = cpus.map_err(|error| {
                        self.error(item.span(), Some(&name), SlaProblem::Grant(error))
                    })?;
                    entry.at_most = Some(cpus);
                }
                "extensible" => entry.extensible = self.yes_or_no(item, &name)?,
                "mean" => entry.mean = self.yes_or_no(item, &name)?,
                _ => {
                    let problem = SlaProblem::UnknownKey { known: KEYS };
                    return Err(self.error(span_of(fields, field), Some(&name), problem));
                }
            }
        }
        Ok(entry)
    }

    fn text_of<'i>(&self, item: &'i Item, name: &str, expected: &'static str) -> Read<&'i str> {
        item.as_str()
            .ok_or_else(|| self.wrong_type(item, name, expected))
    }

    fn yes_or_no(&self, item: &Item, name: &str) -> Read<bool> {
        item.as_bool()
            .ok_or_else(|| self.wrong_type(item, name, "true or false"))
    }

    fn table<'i>(
        &self,
        item: &'i Item,
        name: &str,
        expected: &'static str,
    ) -> Read<&'i dyn TableLike> {
        item.as_table_like()
            .ok_or_else(|| self.wrong_type(item, name, expected))
    }

    fn wrong_type(&self, item: &Item, name: &str, expected: &'static str) -> SlaError {
        self.error(item.span(), Some(name), SlaProblem::WrongType { expected })
    }

    /// Where a span begins; the first character where there is none.
    fn error(
        &self,
        span: Option<Range<usize>>,
        key: Option<&str>,
        problem: SlaProblem,
    ) -> SlaError {
        let before = span
            .and_then(|span| self.text.get(..span.start))
            .unwrap_or("");
        let last_line = before.rsplit('\n').next().unwrap_or("");
        SlaError {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: last_line.chars().count() + 1,
            key: key.map(str::to_owned),
            problem,
        }
    }
}

fn span_of(table: &dyn TableLike, key: &str) -> Option<Range<usize>> {
    table.key(key).and_then(toml_edit::Key::span)
}
