//! What answers are made of: the usage that a site counts, its tree, and how usage is weighed.

use std::collections::BTreeMap;

use fairmesh_model::{AccountPath, Counters, HistoryRule, SiteId, Span, VoId, WindowLength};

use super::AccountKey;
use super::tree::Tree;

/// Usage of an account at a site in a span.
#[derive(Debug, Clone)]
pub struct Row {
    /// Where it was used.
    pub site: SiteId,
    /// By whom.
    pub account: AccountKey,
    /// When.
    pub span: Span,
    /// How much.
    pub counters: Counters,
}

/// How usage is weighed, and from when it is looked back.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The weights.
    pub history: HistoryRule,
    /// Windows.
    pub window: WindowLength,
    /// The window that usage is seen from.
    pub reference: u32,
}

/// What jobs that run at the site which answers count for at its own levels alone: what they have used in
/// a span, where their VO counts it only when they end; or whole, where its owner counts what runs.
pub type Running = (AccountKey, Option<Span>, u64);

/// All that answers are made of.
#[derive(Debug)]
pub struct Given<'a> {
    /// Whose answers.
    pub site: SiteId,
    /// Targets.
    pub tree: &'a Tree,
    /// Usage.
    pub rows: &'a [Row],
    /// What running jobs of a site count for in their VO: it is nothing to an owner's levels.
    pub expected: &'a [(VoId, SiteId, AccountPath, u64)],
    /// What they count for there.
    pub running: &'a [Running],
    /// How the owner weighs.
    pub local: Rules,
    /// How each VO weighs. Usage of others weighs nothing: nobody can say in which windows it lies.
    pub vos: &'a BTreeMap<VoId, Rules>,
}
