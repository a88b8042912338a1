//! Rules, found without a look at each of them: by a condition, and by the path that they charge.
//!
//! Invariant: an index only narrows the search. It returns every rule that can be meant, in the written order, and
//! maybe others; the rule itself decides. Building is n log n.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::VoId;

use super::rule::Rule;
use super::words::{Account, Pattern};

/// Places of rules in the written order.
type Places = Vec<u32>;

/// What is sought at one condition.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sought<'a> {
    /// Rules that may hold for this word.
    Word(&'a str),
    /// Rules that hold for every word that begins so.
    Prefix(&'a str),
}

/// Rules by one condition of each: the one that the fewest rules share. Rules for one user each, or for one account and
/// many groups, are so told apart by what differs.
#[derive(Debug, Clone, Default)]
pub(super) struct ByCondition {
    exact: [BTreeMap<String, Places>; 6],
    prefixes: [Prefixes; 6],
    without: Places,
}

/// Rules by the beginning of a word.
#[derive(Debug, Clone, Default)]
struct Prefixes {
    /// How long they are, so that a word is cut only there.
    lengths: BTreeSet<usize>,
    rules: BTreeMap<String, Places>,
}

impl ByCondition {
    pub(super) fn new(rules: &[Rule]) -> Self {
        let mut shared: BTreeMap<(usize, &Pattern), u32> = BTreeMap::new();
        for rule in rules {
            for (kind, pattern) in rule.conditions().into_iter().enumerate() {
                if let Some(pattern) = pattern {
                    *shared.entry((kind, pattern)).or_default() += 1;
                }
            }
        }
        let mut index = Self::default();
        for (place, rule) in (0..).zip(rules) {
            let given = rule.conditions().into_iter().enumerate();
            let given = given.filter_map(|(kind, pattern)| Some((kind, pattern?)));
            let rarest = given.min_by_key(|(kind, pattern)| {
                let is_prefix = matches!(pattern, Pattern::Prefix(_));
                (shared[&(*kind, *pattern)], is_prefix)
            });
            let places = match rarest {
                None => &mut index.without,
                Some((kind, Pattern::Exact(word))) => {
                    index.exact[kind].entry(word.clone()).or_default()
                }
                Some((kind, Pattern::Prefix(prefix))) => {
                    let prefixes = &mut index.prefixes[kind];
                    prefixes.lengths.insert(prefix.len());
                    prefixes.rules.entry(prefix.clone()).or_default()
                }
            };
            places.push(place);
        }
        index
    }

    /// The first rule, before the place `end`, of which `find` makes something.
    pub(super) fn first<T>(
        &self,
        sought: [Option<Sought<'_>>; 6],
        end: u32,
        mut find: impl FnMut(u32) -> Option<T>,
    ) -> Option<(u32, T)> {
        let (mut best, mut end) = (None, end);
        for places in self.lists(sought) {
            for place in places.iter().copied().take_while(|place| *place < end) {
                if let Some(found) = find(place) {
                    (best, end) = (Some((place, found)), place);
                    break;
                }
            }
        }
        best
    }

    fn lists<'a>(
        &'a self,
        sought: [Option<Sought<'a>>; 6],
    ) -> impl Iterator<Item = &'a Places> + 'a {
        let of_words = sought.into_iter().enumerate().flat_map(|(kind, sought)| {
            let (exact, word) = match sought {
                Some(Sought::Word(word)) => (self.exact[kind].get(word), Some(word)),
                Some(Sought::Prefix(prefix)) => (None, Some(prefix)),
                None => (None, None),
            };
            let prefixes = &self.prefixes[kind];
            let begun = word.into_iter().flat_map(move |word| {
                let lengths = prefixes.lengths.range(..=word.len());
                lengths.filter_map(move |length| prefixes.rules.get(word.get(..*length)?))
            });
            exact.into_iter().chain(begun)
        });
        of_words.chain([&self.without])
    }
}

/// Rules by the account that they charge: by the VO, by which names of the path are templates, and by the names that
/// are none. An account is sought once for each set of templates, of which a site has a few.
#[derive(Debug, Clone, Default)]
pub(super) struct ByPath(BTreeMap<(Option<VoId>, Vec<bool>), BTreeMap<String, Places>>);

impl ByPath {
    pub(super) fn insert(&mut self, place: u32, rule: &Rule) {
        let names: Vec<bool> = rule
            .path
            .split('/')
            .map(|name| name.contains('{'))
            .collect();
        let literal = literal_names(&rule.path, &names).into_owned();
        let rules = self.0.entry((rule.vo, names)).or_default();
        rules.entry(literal).or_default().push(place);
    }

    /// Rules whose path may be that of `account`.
    pub(super) fn at<'a>(&'a self, account: &'a Account) -> impl Iterator<Item = u32> + 'a {
        let path = account.path.as_str();
        let of_vo = self.0.range((account.vo, Vec::new())..);
        let of_vo = of_vo.take_while(|((vo, _), _)| *vo == account.vo);
        let depth = path.split('/').count();
        let of_depth = of_vo.filter(move |((_, names), _)| names.len() == depth);
        let lists =
            of_depth.filter_map(move |((_, names), rules)| rules.get(&*literal_names(path, names)));
        lists.flatten().copied()
    }
}

/// A path with nothing in the place of each name that is a template.
fn literal_names<'a>(path: &'a str, is_template: &[bool]) -> Cow<'a, str> {
    if !is_template.contains(&true) {
        return Cow::Borrowed(path);
    }
    let mut literal = String::with_capacity(path.len());
    for (name, is_template) in path.split('/').zip(is_template) {
        literal.push_str(if *is_template { "" } else { name });
        literal.push('/');
    }
    Cow::Owned(literal)
}
