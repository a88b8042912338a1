//! The arguments of one step: what stands beside its `at`.
//!
//! Invariant: every argument is taken by its step exactly once, with the kind that it needs; what is
//! left over at the end is refused by name. Deliberately not here: what steps do with them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use fairmesh_model::{Millis, Share};
use serde::de::DeserializeOwned;
use toml::{Spanned, Value};

use super::error::{ScenarioError, Source};
use super::length::Length;
use crate::vo::VoSpec;

/// A step as it stands in the file.
pub(super) type RawStep = BTreeMap<Spanned<String>, Spanned<Value>>;

/// The arguments of a step.
#[derive(Debug)]
pub(super) struct Args<'a> {
    source: Source<'a>,
    /// Where the step begins.
    pub(super) start: usize,
    fields: RawStep,
    taken: RefCell<Vec<&'static str>>,
    pub(super) sites: usize,
    pub(super) vos: &'a [VoSpec],
}

impl<'a> Args<'a> {
    pub(super) fn new(
        source: Source<'a>,
        step: Spanned<RawStep>,
        sites: usize,
        vos: &'a [VoSpec],
    ) -> Self {
        Self {
            source,
            start: step.span().start,
            fields: step.into_inner(),
            taken: RefCell::new(Vec::new()),
            sites,
            vos,
        }
    }

    pub(super) fn line(&self) -> usize {
        self.source.line(self.start)
    }

    pub(super) fn maybe<T: DeserializeOwned>(
        &self,
        key: &'static str,
    ) -> Result<Option<T>, ScenarioError> {
        self.taken.borrow_mut().push(key);
        let Some(value) = self.fields.get(key) else {
            return Ok(None);
        };
        let wrong = |error: toml::de::Error| self.error(key, error.message().to_owned());
        value.get_ref().clone().try_into().map(Some).map_err(wrong)
    }

    pub(super) fn need<T: DeserializeOwned>(&self, key: &'static str) -> Result<T, ScenarioError> {
        let missing = || self.error(key, "it is missing".to_owned());
        self.maybe(key)?.ok_or_else(missing)
    }

    pub(super) fn length(&self, key: &'static str) -> Result<Millis, ScenarioError> {
        let length: Length = self.need(key)?;
        self.positive(key, length)
    }

    pub(super) fn length_or(
        &self,
        key: &'static str,
        default: Millis,
    ) -> Result<Millis, ScenarioError> {
        match self.maybe(key)? {
            Some(length) => self.positive(key, length),
            None => Ok(default),
        }
    }

    fn positive(&self, key: &'static str, length: Length) -> Result<Millis, ScenarioError> {
        let below = || self.error(key, "it is below zero".to_owned());
        length.millis().ok_or_else(below)
    }

    /// One node: `node`.
    pub(super) fn node(&self) -> Result<usize, ScenarioError> {
        let node = self.need("node")?;
        self.known_nodes("node", vec![node]).map(|nodes| nodes[0])
    }

    /// `node`, `nodes`, or all.
    pub(super) fn nodes(&self) -> Result<Vec<usize>, ScenarioError> {
        match (self.maybe("node")?, self.maybe("nodes")?) {
            (Some(_), Some(_)) => Err(self.error("nodes", "give `node` or `nodes`".to_owned())),
            (Some(node), None) => self.known_nodes("node", vec![node]),
            (None, Some(nodes)) => self.known_nodes("nodes", nodes),
            (None, None) => Ok((0..self.sites).collect()),
        }
    }

    /// `node` or `nodes`: nothing happens to all by accident.
    pub(super) fn some_nodes(&self) -> Result<Vec<usize>, ScenarioError> {
        let nodes = self.nodes()?;
        let named = self.fields.get("node").or(self.fields.get("nodes"));
        let missing = || self.error("node", "it is missing; `nodes` names more".to_owned());
        named.map(|_| nodes).ok_or_else(missing)
    }

    pub(super) fn list(&self, key: &'static str) -> Result<Vec<usize>, ScenarioError> {
        self.known_nodes(key, self.need(key)?)
    }

    pub(super) fn list_or_none(&self, key: &'static str) -> Result<Vec<usize>, ScenarioError> {
        self.known_nodes(key, self.maybe(key)?.unwrap_or_default())
    }

    pub(super) fn sets(&self, key: &'static str) -> Result<Vec<Vec<usize>>, ScenarioError> {
        let sets: Vec<Vec<usize>> = self.need(key)?;
        sets.into_iter()
            .map(|set| self.known_nodes(key, set))
            .collect()
    }

    fn known_nodes(
        &self,
        key: &'static str,
        nodes: Vec<usize>,
    ) -> Result<Vec<usize>, ScenarioError> {
        match nodes.iter().find(|node| **node >= self.sites) {
            Some(node) => {
                let last = self.sites - 1;
                Err(self.error(
                    key,
                    format!("there is no site {node}: they are 0 to {last}"),
                ))
            }
            None => Ok(nodes),
        }
    }

    /// The VO named by `vo`, if one is.
    pub(super) fn maybe_vo(&self) -> Result<Option<usize>, ScenarioError> {
        let Some(name) = self.maybe::<String>("vo")? else {
            return Ok(None);
        };
        let found = self.vos.iter().position(|vo| vo.name == name);
        let unknown = || self.error("vo", format!("there is no VO `{name}`"));
        found.ok_or_else(unknown).map(Some)
    }

    /// The VO named by `vo`, or the only one.
    pub(super) fn vo(&self) -> Result<usize, ScenarioError> {
        match self.maybe_vo()? {
            Some(vo) => Ok(vo),
            None if self.vos.len() == 1 => Ok(0),
            None => Err(self.error("vo", "there are several: name one".to_owned())),
        }
    }

    /// A share in percent, as a number or a text.
    pub(super) fn share(&self, key: &'static str) -> Result<Share, ScenarioError> {
        self.to_share(key, &self.need(key)?)
    }

    /// Shares by path.
    pub(super) fn shares(&self, key: &'static str) -> Result<Vec<(String, Share)>, ScenarioError> {
        let shares: BTreeMap<String, Value> = self.need(key)?;
        shares
            .into_iter()
            .map(|(path, share)| Ok((path, self.to_share(key, &share)?)))
            .collect()
    }

    fn to_share(&self, key: &'static str, value: &Value) -> Result<Share, ScenarioError> {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        Share::parse_percent(&text).map_err(|error| self.error(key, error.to_string()))
    }

    /// Refuses what nobody has taken.
    pub(super) fn done(&self, what: &str) -> Result<(), ScenarioError> {
        let taken = self.taken.borrow();
        let is_left = |key: &&Spanned<String>| !taken.iter().any(|known| known == key.get_ref());
        let Some(left) = self.fields.keys().find(is_left) else {
            return Ok(());
        };
        let mut known: Vec<&str> = taken.clone();
        known.sort_unstable();
        known.dedup();
        let mut error = self.source.error(
            left.span().start,
            None,
            format!(
                "it means nothing for {what}; known here: {}",
                known.join(", ")
            ),
        );
        error.key = Some(left.get_ref().clone());
        Err(error)
    }

    /// An error about an argument, or about the step where it has none of that name.
    pub(super) fn error(&self, key: &'static str, problem: String) -> ScenarioError {
        let field = self.fields.get(key);
        let at = field.map_or(self.start, |value| value.span().start);
        self.source.error(at, key, problem)
    }
}
