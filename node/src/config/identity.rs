//! `[[identity]]`: the rules that say whose a job is, checked and compiled once, with the people of their map.
//!
//! Invariant: every path that a rule can make is a path, and every VO that a rule or a person names has an id in
//! `[vos]`. Deliberately not here: how a job finds its rule (`fairmesh_site`), and the file of the people (`people`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fairmesh_model::{AccountPath, VoId};
use fairmesh_site::{IdentityMap, Pattern, People, Rule};
use serde::Deserialize;
use toml::Spanned;

use super::names::vo_of;
use super::people;
use super::text::{FileError, Source};

/// Stands for the site's name in a path.
const SITE: &str = "{site}";

/// A table of `[[identity]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRule {
    user: Option<String>,
    account: Option<String>,
    group: Option<String>,
    subject: Option<String>,
    queue: Option<Spanned<String>>,
    /// Slurm's word for a queue.
    partition: Option<Spanned<String>>,
    qos: Option<String>,
    vo: Option<Spanned<String>>,
    path: Spanned<String>,
    shared_names: Option<Spanned<bool>>,
}

/// The rules and the people, and the file that the people were read from.
pub(super) fn checked(
    source: Source<'_>,
    site: &str,
    (rules, people): (&[RawRule], Option<&Spanned<String>>),
    base: &Path,
    vos: &BTreeMap<String, VoId>,
    read_file: &dyn Fn(&Path) -> anyhow::Result<String>,
) -> anyhow::Result<(IdentityMap, Option<PathBuf>)> {
    let rules = rules.iter().map(|rule| self::rule(source, rule, vos, site));
    let rules = rules.collect::<Result<_, _>>()?;
    let Some(file) = people else {
        return Ok((IdentityMap::with_people(rules, People::default()), None));
    };
    let path = base.join(file.get_ref());
    let text =
        read_file(&path).map_err(|error| source.wrong("people", file, format!("{error:#}")))?;
    let name = path.display().to_string();
    let people = Source {
        file: &name,
        text: &text,
    };
    let people = people::read(people, vos)?;
    Ok((IdentityMap::with_people(rules, people), Some(path)))
}

fn rule(
    source: Source<'_>,
    raw: &RawRule,
    vos: &BTreeMap<String, VoId>,
    site: &str,
) -> Result<Rule, FileError> {
    let vo = match &raw.vo {
        None => None,
        Some(alias) => {
            let place = Some(alias.span());
            Some(vo_of(source, vos, alias.get_ref(), place, "identity.vo")?)
        }
    };
    if let (Some(_), Some(partition)) = (&raw.queue, &raw.partition) {
        let problem = "`queue` and `partition` are two words for the same condition";
        let error = source.wrong("identity.partition", partition, problem);
        return Err(error.with_help("keep one of them"));
    }
    let shared_names = raw.shared_names.as_ref().filter(|shared| *shared.get_ref());
    if let Some(shared) = shared_names.filter(|_| !raw.path.get_ref().contains("{user}")) {
        let problem = "this path names no {user}, so names in it are nobody's";
        let error = source.wrong("identity.shared_names", shared, problem);
        return Err(error.with_help("leave `shared_names` out"));
    }
    let queue = raw.queue.as_ref().or(raw.partition.as_ref());
    let pattern = |text: &Option<String>| text.as_deref().map(Pattern::parse);
    Ok(Rule {
        user: pattern(&raw.user),
        account: pattern(&raw.account),
        group: pattern(&raw.group),
        subject: pattern(&raw.subject),
        queue: queue.map(|queue| Pattern::parse(queue.get_ref())),
        qos: pattern(&raw.qos),
        vo,
        path: path(source, &raw.path, site)?,
        is_of_site: raw.path.get_ref().contains(SITE),
        shares_names: shared_names.is_some(),
    })
}

/// The path of a rule, with the site's name in its place.
fn path(source: Source<'_>, raw: &Spanned<String>, site: &str) -> Result<String, FileError> {
    let wrong = |problem: String| source.wrong("identity.path", raw, problem);
    let written = raw.get_ref();
    if written.contains(SITE) && site.contains(['{', '}']) {
        let problem = format!("the site's name `{site}` has a brace, so no path can have it");
        return Err(wrong(problem).with_help("write the name that the path is to have"));
    }
    let path = written.replace(SITE, site);
    let words = ["{user}", "{account}", "{group}", "{subject}"];
    let sample = words
        .iter()
        .fold(path.clone(), |path, word| path.replace(word, "x"));
    let problem = match AccountPath::parse(&sample) {
        Err(error) => error.to_string(),
        Ok(_) if sample.contains(['{', '}']) => "an unknown word in braces".to_owned(),
        Ok(_) => return Ok(path),
    };
    let help = "write a path such as \"/P-B1/{user}\"; {user}, {account}, {group} and {subject} are replaced by the \
                job's words, {site} by the site's name";
    Err(wrong(problem).with_help(help))
}
