//! From text to a [`TreeFile`].
//!
//! Invariant: the first thing wrong is reported where it stands. Deliberately not here: what a
//! key means for which kind of policy; that depends on what the tree becomes (`super`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fairmesh_model::{AccountPath, KeyId, PolicyMount, Role, Scope, Share};
use toml_edit::{Document, Item, TableLike, Value};

use super::problem::{Problem, TreeFileError};
use super::{FileEntry, Position, TreeFile};

const ENTRY_KEYS: &str = "share, at_most, usage, distance, mount, cap, weight, drop, delegate";

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
    Ok(TreeFile {
        file: file_name.to_owned(),
        entries,
    })
}

struct Reader<'a> {
    file_name: &'a str,
    text: &'a str,
}

type Read<T> = Result<T, TreeFileError>;

impl Reader<'_> {
    fn entry(&self, key: &str, span: Option<Range<usize>>, item: &Item) -> Read<FileEntry> {
        let mut entry = FileEntry {
            at: self.position(span.clone()),
            share: Share::WHOLE,
            at_most: None,
            mount: None,
            cap: None,
            weight: None,
            drop: None,
            usage: None,
            distance: None,
            delegate: None,
            policy: None,
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
            entry.share = self.percent(key, item)?;
        }
        if key == "/" && (entry.share != Share::WHOLE || entry.at_most.is_some()) {
            return Err(self.error(item.span(), Some(key), Problem::RootShare));
        }
        if let Some((at, most)) = entry.at_most.filter(|(_, most)| *most < entry.share) {
            let (name, share) = (format!("{key}.at_most"), entry.share);
            let problem = Problem::BelowShare { most, share };
            return Err(self.error_at(at, Some(&name), problem));
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
        let at = self.position(item.span());
        let wrong = |expected| self.wrong_type(item, &name, expected);
        match field {
            "share" => entry.share = self.percent(&name, item)?,
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

    /// A percentage, from the digits that were written.
    fn percent(&self, name: &str, item: &Item) -> Read<Share> {
        let number = matches!(item, Item::Value(Value::Integer(_) | Value::Float(_)));
        let written = item
            .span()
            .and_then(|span| self.text.get(span))
            .filter(|_| number);
        let expected = "a percentage such as 12.5, without quotes";
        let written = written.ok_or_else(|| self.wrong_type(item, name, expected))?;
        Share::parse_percent(written)
            .map_err(|error| self.error(item.span(), Some(name), Problem::Share(error)))
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
        self.error_at(self.position(span), key, problem)
    }

    fn error_at(&self, at: Position, key: Option<&str>, problem: Problem) -> TreeFileError {
        TreeFileError {
            file: self.file_name.to_owned(),
            line: at.line,
            column: at.column,
            key: key.map(str::to_owned),
            problem,
        }
    }

    /// Where a span begins; the first character where there is none.
    fn position(&self, span: Option<Range<usize>>) -> Position {
        let before = span
            .and_then(|span| self.text.get(..span.start))
            .unwrap_or("");
        let last_line = before.rsplit('\n').next().unwrap_or("");
        Position {
            line: before.matches('\n').count() + 1,
            column: last_line.chars().count() + 1,
        }
    }
}

fn span_of(table: &dyn TableLike, key: &str) -> Option<Range<usize>> {
    table.key(key).and_then(toml_edit::Key::span)
}
