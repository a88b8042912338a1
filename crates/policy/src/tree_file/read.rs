//! From text to a [`TreeFile`].
//!
//! Invariant: the first thing wrong is reported where it stands. Deliberately not here: what a
//! key means for which kind of policy; that depends on what the tree becomes (`super`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fairmesh_model::{
    AccountPath, Date, KeyId, PolicyMount, Role, Scope, Share, Weight, check_shares,
};
use toml_edit::{Document, Item, TableLike, Value};

use super::problem::{Problem, TreeFileError};
use super::{FileEntry, Offset, TreeFile, error_at};

const ENTRY_KEYS: &str =
    "share, at_most, was, since, usage, distance, mount, cap, weight, drop, delegate";

/// Reads a share tree. `file_name` is for error messages.
pub fn parse_tree(text: &str, file_name: &str) -> Result<TreeFile, TreeFileError> {
    parse(text, file_name, &["shares"])
}

/// The same of a draft of a share policy, whose header `[policy]` is passed over.
pub fn parse_draft(text: &str, file_name: &str) -> Result<TreeFile, TreeFileError> {
    parse(text, file_name, &["policy", "shares"])
}

fn parse(text: &str, file_name: &str, tables: &[&str]) -> Result<TreeFile, TreeFileError> {
    let reader = Reader { file_name, text };
    let document = Document::parse(text).map_err(|error| {
        let problem = Problem::Syntax(error.message().to_owned());
        reader.error(error.span(), None, problem)
    })?;
    let top = document.as_table();
    if let Some((key, _)) = top.iter().find(|(key, _)| !tables.contains(key)) {
        let known = "[shares]";
        return Err(reader.error(span_of(top, key), Some(key), Problem::UnknownKey { known }));
    }
    let shares = top
        .get("shares")
        .ok_or_else(|| reader.error(None, None, Problem::NoShares))?;
    let shares = reader.table(shares, "shares", "a table [shares] of entries")?;
    let mut entries = BTreeMap::new();
    for (key, item) in shares.iter() {
        let span = span_of(shares, key);
        let path = AccountPath::parse(key)
            .map_err(|error| reader.error(span.clone(), Some(key), Problem::Path(error)))?;
        entries.insert(path, reader.entry(key, span, item)?);
    }
    for (path, entry) in &entries {
        let parent = path.parent().filter(|parent| !parent.is_root());
        if let Some(parent) = parent.filter(|parent| !entries.contains_key(parent)) {
            let problem = Problem::MissingParent { parent };
            return Err(reader.error_at(entry.at, Some(path.as_str()), problem));
        }
    }
    let lines = entries.iter().map(|(path, entry)| (path, entry.line()));
    check_shares(&lines.collect()).map_err(|error| {
        let (path, problem) = (error.path, Problem::Line(error.problem));
        reader.error_at(entries[&path].at, Some(path.as_str()), problem)
    })?;
    reader.check_limits(&entries)?;
    Ok(TreeFile {
        file: file_name.to_owned(),
        text: text.to_owned(),
        entries,
    })
}

struct Reader<'a> {
    file_name: &'a str,
    text: &'a str,
}

type Read<T> = Result<T, TreeFileError>;

impl<'a> Reader<'a> {
    fn entry(&self, key: &str, span: Option<Range<usize>>, item: &Item) -> Read<FileEntry> {
        let mut entry = FileEntry {
            at: offset(span.clone()),
            share: Weight::HUNDRED,
            at_most: None,
            mount: None,
            cap: None,
            weight: None,
            drop: None,
            usage: None,
            distance: None,
            delegate: None,
            policy: None,
            was: Vec::new(),
            since: None,
        };
        if let Some(fields) = item.as_table_like() {
            if !fields.contains_key("share") && key != "/" {
                return Err(self.error(span, Some(key), Problem::NoShare));
            }
            for (field, item) in fields.iter() {
                let span = span_of(fields, field);
                self.field(&mut entry, key, field, span, item)?;
            }
        } else {
            entry.share = self.weight(key, item)?;
        }
        let says_more = entry.at_most.is_some() || !entry.was.is_empty() || entry.since.is_some();
        if key == "/" && (entry.share != Weight::HUNDRED || says_more) {
            return Err(self.error(item.span(), Some(key), Problem::RootShare));
        }
        Ok(entry)
    }

    fn field(
        &self,
        entry: &mut FileEntry,
        key: &str,
        field: &str,
        span: Option<Range<usize>>,
        item: &Item,
    ) -> Read<()> {
        let name = format!("{key}.{field}");
        let at = offset(item.span());
        let wrong = |expected| self.wrong_type(item, &name, expected);
        match field {
            "share" => entry.share = self.weight(&name, item)?,
            "was" => entry.was = self.former(&name, item)?,
            "since" => entry.since = Some(self.date(&name, item)?),
            "at_most" => entry.at_most = Some((at, self.percent(&name, item)?)),
            "cap" => entry.cap = Some((at, self.percent(&name, item)?)),
            "weight" => entry.weight = Some((at, self.percent(&name, item)?)),
            "mount" if item.is_table_like() => {
                entry.policy = Some((at, self.policy_mount(&name, item)?));
            }
            "mount" => {
                let alias = item.as_str().filter(|alias| !alias.is_empty());
                let alias = alias.ok_or_else(|| wrong("the alias of a VO, in quotes"))?;
                entry.mount = Some((at, alias.to_owned()));
            }
            "drop" => {
                let drop = item.as_bool().ok_or_else(|| wrong("true or false"))?;
                entry.drop = Some((at, drop));
            }
            "usage" => {
                let word = |scope: &Scope| item.as_str() == Some(scope.word());
                let scope = [Scope::Local, Scope::Global].into_iter().find(word);
                let expected = "\"local\" (usage of this site) or \"global\" (of all members)";
                entry.usage = Some(scope.ok_or_else(|| wrong(expected))?);
            }
            "distance" => {
                let distance = item.as_str().and_then(|word| word.parse().ok());
                let expected = "\"absolute\", \"relative\" or \"mix:K\" with K from 0 to 1";
                entry.distance = Some(distance.ok_or_else(|| wrong(expected))?);
            }
            "delegate" => entry.delegate = Some((at, self.role(&name, item)?)),
            _ => {
                let known = ENTRY_KEYS;
                return Err(self.error(span, Some(&name), Problem::UnknownKey { known }));
            }
        }
        Ok(())
    }

    fn policy_mount(&self, name: &str, item: &Item) -> Read<PolicyMount> {
        const FORM: &str = "{ vo = \"<VO id>\", path = \"/P\" }";
        let fields = self.table(item, name, FORM)?;
        let (mut vo, mut path) = (None, AccountPath::root());
        for (field, item) in fields.iter() {
            let inner = format!("{name}.{field}");
            let text = item.as_str().unwrap_or_default();
            match field {
                "vo" => {
                    let id = text.parse().map_err(Problem::Key);
                    vo =
                        Some(id.map_err(|problem| self.error(item.span(), Some(&inner), problem))?);
                }
                "path" => {
                    let parsed = AccountPath::parse(text).map_err(Problem::Path);
                    path =
                        parsed.map_err(|problem| self.error(item.span(), Some(&inner), problem))?;
                }
                _ => {
                    let (span, known) = (span_of(fields, field), "vo, path");
                    return Err(self.error(span, Some(&inner), Problem::UnknownKey { known }));
                }
            }
        }
        let vo = vo.ok_or_else(|| self.wrong_type(item, name, FORM))?;
        Ok(PolicyMount { vo, path })
    }

    fn role(&self, name: &str, item: &Item) -> Read<Role> {
        let fields = self.table(item, name, "{ keys = [\"…\"], threshold = … }")?;
        let (mut keys, mut threshold) = (BTreeSet::new(), 1);
        for (field, item) in fields.iter() {
            let inner = format!("{name}.{field}");
            match field {
                "keys" => keys = self.keys(&inner, item)?,
                "threshold" => {
                    let number = item
                        .as_integer()
                        .and_then(|number| u32::try_from(number).ok());
                    let expected = "a number of keys";
                    threshold = number.ok_or_else(|| self.wrong_type(item, &inner, expected))?;
                }
                _ => {
                    let (span, known) = (span_of(fields, field), "keys, threshold");
                    return Err(self.error(span, Some(&inner), Problem::UnknownKey { known }));
                }
            }
        }
        let role = Role { keys, threshold };
        role.validate("delegate")
            .map_err(|what| self.error(item.span(), Some(name), Problem::Role(what)))?;
        Ok(role)
    }

    fn keys(&self, name: &str, item: &Item) -> Read<BTreeSet<KeyId>> {
        let expected = "a list of key ids, each 64 hexadecimal digits in quotes";
        let array = item
            .as_array()
            .ok_or_else(|| self.wrong_type(item, name, expected))?;
        let mut keys = BTreeSet::new();
        for value in array {
            let wrong = || self.error(value.span(), Some(name), Problem::WrongType { expected });
            let text = value.as_str().ok_or_else(wrong)?;
            let key = text
                .parse()
                .map_err(|error| self.error(value.span(), Some(name), Problem::Key(error)))?;
            if !keys.insert(key) {
                return Err(self.error(value.span(), Some(name), Problem::KeyTwice(key)));
            }
        }
        Ok(keys)
    }

    /// Where siblings add up to 100, shares and limits are percentages of one whole, and a limit below the share
    /// is a slip. Elsewhere it means what it says: the entry is over its limit before it has its share.
    fn check_limits(&self, entries: &BTreeMap<AccountPath, FileEntry>) -> Read<()> {
        let mut totals: BTreeMap<&str, u128> = BTreeMap::new();
        for (path, entry) in entries {
            let total = totals.entry(path.parent_str().unwrap_or("")).or_default();
            *total += u128::from(entry.share.units());
        }
        for (path, entry) in entries {
            let total = totals[path.parent_str().unwrap_or("")];
            let is_percent = total == u128::from(Weight::HUNDRED.units());
            if let Some((at, most)) = entry.at_most
                && is_percent
                && Weight::from(most) < entry.share
            {
                let (name, share) = (format!("{path}.at_most"), entry.share);
                let problem = Problem::BelowShare { most, share };
                return Err(self.error_at(at, Some(&name), problem));
            }
        }
        Ok(())
    }

    /// Former paths: one in quotes, or a list of them.
    fn former(&self, name: &str, item: &Item) -> Read<Vec<AccountPath>> {
        let expected = "the entry's former paths, such as [\"/higgs\"]";
        let wrong = |span| self.error(span, Some(name), Problem::WrongType { expected });
        let path = |value: &Value| {
            let text = value.as_str().ok_or_else(|| wrong(value.span()))?;
            AccountPath::parse(text)
                .map_err(|error| self.error(value.span(), Some(name), Problem::Path(error)))
        };
        match item.as_value() {
            Some(Value::Array(paths)) => paths.iter().map(path).collect(),
            Some(one) => Ok(vec![path(one)?]),
            None => Err(wrong(item.span())),
        }
    }

    /// A date, in quotes or without.
    fn date(&self, name: &str, item: &Item) -> Read<Date> {
        let expected = "a date such as \"2026-07-01\"";
        let text = match item.as_value() {
            Some(Value::String(text)) => text.value().clone(),
            Some(Value::Datetime(date)) => date.value().to_string(),
            _ => return Err(self.wrong_type(item, name, expected)),
        };
        text.parse()
            .map_err(|error| self.error(item.span(), Some(name), Problem::Date(error)))
    }

    /// The digits of a number as they were written.
    fn digits(&self, name: &str, item: &Item, expected: &'static str) -> Read<&'a str> {
        let number = matches!(item, Item::Value(Value::Integer(_) | Value::Float(_)));
        let written = item
            .span()
            .and_then(|span| self.text.get(span))
            .filter(|_| number);
        written.ok_or_else(|| self.wrong_type(item, name, expected))
    }

    /// A limit in percent.
    fn percent(&self, name: &str, item: &Item) -> Read<Share> {
        let written = self.digits(name, item, "a percentage such as 12.5, without quotes")?;
        Share::parse_percent(written)
            .map_err(|error| self.error(item.span(), Some(name), Problem::Share(error)))
    }

    /// A weight among siblings.
    fn weight(&self, name: &str, item: &Item) -> Read<Weight> {
        let written = self.digits(name, item, "a share such as 30 or 12.5, without quotes")?;
        Weight::parse(written)
            .map_err(|error| self.error(item.span(), Some(name), Problem::Weight(error)))
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

    fn wrong_type(&self, item: &Item, name: &str, expected: &'static str) -> TreeFileError {
        self.error(item.span(), Some(name), Problem::WrongType { expected })
    }

    fn error(
        &self,
        span: Option<Range<usize>>,
        key: Option<&str>,
        problem: Problem,
    ) -> TreeFileError {
        self.error_at(offset(span), key, problem)
    }

    fn error_at(&self, at: Offset, key: Option<&str>, problem: Problem) -> TreeFileError {
        error_at((self.file_name, self.text), at, key, problem)
    }
}

/// Where a span begins; the first character where there is none.
fn offset(span: Option<Range<usize>>) -> Offset {
    span.map_or(0, |span| span.start)
}

fn span_of(table: &dyn TableLike, key: &str) -> Option<Range<usize>> {
    table.key(key).and_then(toml_edit::Key::span)
}
