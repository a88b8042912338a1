//! From a step of a file to what it does or expects.
//!
//! A step is read as serde writes a variant: its word becomes the name of the variant, and what stands
//! beside it the variant's fields, each with its place in the file.
//!
//! Invariant: numbers of sites, names of VOs and paths in a step name something. An error stands where
//! the file is wrong. Deliberately not here: what steps mean (`world::Action`, `Expect`).

use fairmesh_model::{AccountPath, Millis};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ScenarioError, Source};
use super::{Step, What};
use crate::vo::VoSpec;
use crate::world::{Action, line};

/// Most times that a step is repeated.
const TIMES_MAX: usize = 10_000;

/// Arguments whose numbers are sites.
const OF_SITES: [&str; 7] = ["node", "nodes", "site", "sites", "from", "to", "sets"];

/// When a step comes, how often, and its word.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    #[serde(with = "crate::length")]
    at: Millis,
    #[serde(default, with = "crate::length")]
    every: Option<Millis>,
    times: Option<usize>,
    #[serde(default, with = "crate::length")]
    r#for: Option<Millis>,
    r#do: Option<Spanned<String>>,
    expect: Option<Spanned<String>>,
}

/// Its keys; all others are the word's arguments.
const HEAD: [&str; 6] = ["at", "every", "times", "for", "do", "expect"];

pub(super) struct Reader<'a> {
    pub(super) source: Source<'a>,
    pub(super) sites: usize,
    pub(super) vos: &'a [VoSpec],
    pub(super) duration: Millis,
}

impl Reader<'_> {
    /// One step of the file is several where it is repeated, where nodes have their turns, and where
    /// it is put right after a while.
    pub(super) fn read(&self, step: Spanned<DeValue<'_>>) -> Result<Vec<Step>, ScenarioError> {
        let span = step.span();
        let error = |key, why| Err(self.source.error(span.start, key, why));
        let DeValue::Table(mut arguments) = step.into_inner() else {
            return error("step", "it is a table");
        };
        let head = HEAD.iter().filter_map(|key| arguments.remove_entry(*key));
        let head = Spanned::new(span.clone(), DeValue::Table(head.collect()));
        let head: Head = self.source.value(head)?;
        for (key, value) in &arguments {
            self.check(key.get_ref(), value)?;
        }
        let (times, every) = (head.times.unwrap_or(1), head.every.unwrap_or_default());
        if times > TIMES_MAX || (times > 1 && every == Millis(0)) {
            return error("times", "it needs `every`, and is 10000 at most");
        }
        let nodes = arguments.get("nodes").map(|nodes| nodes.get_ref());
        let turns: Vec<_> = match nodes.and_then(DeValue::as_array) {
            Some(nodes) if head.times.is_none() && every > Millis(0) => {
                nodes.iter().map(|node| Some(node.clone())).collect()
            }
            _ => vec![None; times],
        };
        let mut steps = Vec::new();
        for (number, turn) in turns.into_iter().enumerate() {
            let mut arguments = Spanned::new(span.clone(), arguments.clone());
            if let (Some(node), Some(nodes)) = (turn, arguments.get_mut().get_mut("nodes")) {
                *nodes.get_mut() = DeValue::Array([node].into_iter().collect());
            }
            let at = Millis(head.at.0 + every.0 * number as u64);
            steps.extend(self.one(at, &head, arguments)?);
        }
        Ok(steps)
    }

    /// A step, and what puts it right again.
    fn one(
        &self,
        at: Millis,
        head: &Head,
        arguments: Spanned<DeTable<'_>>,
    ) -> Result<Vec<Step>, ScenarioError> {
        let start = arguments.span().start;
        let error = |key, why: &str| Err(self.source.error(start, key, why));
        let step = |at, text, what| Step {
            at,
            line: self.source.line(start),
            text,
            what,
        };
        let (steps, last) = match (&head.r#do, &head.expect) {
            (Some(word), None) => {
                let action: Action = self.variant(word, arguments)?;
                // Checked where it stands in the file; it may have been left out.
                if let Some(vo) = action.vo().filter(|vo| !self.is_vo(vo)) {
                    return error("vo", &format!("there is no VO `{vo}`: name one"));
                }
                let last = Millis(at.0 + head.r#for.unwrap_or_default().0);
                let undone = head.r#for.map(|_| action.undone());
                if undone == Some(None) {
                    return error("for", "nothing puts this right");
                }
                let undone = undone.flatten().map(|action| (last, action));
                let steps = [(at, action)].into_iter().chain(undone);
                let done = |(at, action): (_, Action)| step(at, action.line(), What::Do(action));
                (steps.map(done).collect(), last)
            }
            (None, Some(_)) if head.r#for.is_some() => {
                return error("for", "nothing puts this right");
            }
            (None, Some(word)) => {
                let plain = DeValue::Table(arguments.get_ref().clone());
                let plain = self.source.value(Spanned::new(arguments.span(), plain))?;
                let text = line(word.get_ref(), &plain);
                let expect = self.variant(word, arguments)?;
                (vec![step(at, text, What::Expect(expect))], at)
            }
            _ => return error("do", "a step has either a `do` or an `expect`"),
        };
        match last > self.duration {
            true => error("at", "it lies behind the end of the scenario"),
            false => Ok(steps),
        }
    }

    /// Word and arguments become one value, as serde writes a variant.
    fn variant<T: DeserializeOwned>(
        &self,
        word: &Spanned<String>,
        arguments: Spanned<DeTable<'_>>,
    ) -> Result<T, ScenarioError> {
        let span = arguments.span();
        let key = Spanned::new(word.span(), word.get_ref().as_str().into());
        let value = Spanned::new(span.clone(), DeValue::Table(arguments.into_inner()));
        let tagged = DeValue::Table([(key, value)].into_iter().collect());
        self.source.value(Spanned::new(span, tagged))
    }

    /// Numbers of sites, names of VOs and paths name something.
    fn check(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Result<(), ScenarioError> {
        let error = |problem: String| Err(self.source.error(value.span().start, None, problem));
        match value.get_ref() {
            DeValue::Array(elements) => elements.iter().try_for_each(|one| self.check(key, one)),
            DeValue::Table(fields) => {
                let mut fields = fields.iter();
                fields.try_for_each(|(key, value)| self.check(key.get_ref(), value))
            }
            DeValue::Integer(number) if OF_SITES.contains(&key) => {
                let site = number.as_str().parse::<u64>();
                match site.is_ok_and(|site| site < self.sites as u64) {
                    true => Ok(()),
                    false => {
                        let last = self.sites - 1;
                        error(format!("there is no site {number}: they are 0 to {last}"))
                    }
                }
            }
            DeValue::String(name) if key == "vo" && !self.is_vo(name) => {
                error(format!("there is no VO `{name}`"))
            }
            DeValue::String(name) if key == "account" && name != "local" && !self.is_vo(name) => {
                error("it is the name of a VO, or local".to_owned())
            }
            DeValue::String(path) if key == "path" => match AccountPath::parse(path) {
                Ok(_) => Ok(()),
                Err(why) => error(why.to_string()),
            },
            _ => Ok(()),
        }
    }

    fn is_vo(&self, name: &str) -> bool {
        self.vos.iter().any(|vo| vo.name == name)
    }
}
