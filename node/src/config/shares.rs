//! The owner's share tree: a file of its own, a table of the configuration, or a default.
//!
//! Invariant: every VO that the tree mounts has an id in `[vos]`. Errors have the line of the file
//! that the person edits. Deliberately not here: the form of a share tree (`fairmesh_policy`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fairmesh_model::{AccountPath, VoId, Weight};
use fairmesh_policy::{SiteEntry, SitePolicy, parse_tree};

use super::raw::RawConfig;
use super::tables::only_table;
use super::text::Source;

pub(super) fn read(
    source: Source<'_>,
    raw: &RawConfig,
    base: &Path,
    vos: &BTreeMap<String, VoId>,
    read_file: &dyn Fn(&Path) -> anyhow::Result<String>,
) -> anyhow::Result<(SitePolicy, Option<PathBuf>)> {
    match (&raw.policy_file, &raw.shares) {
        (Some(file), Some(_)) => {
            let problem = "the shares have a file of their own and a table here";
            let error = source.wrong("policy_file", file, problem);
            Err(error
                .with_help("keep policy_file or [shares], not both")
                .into())
        }
        (Some(file), None) => {
            let path = base.join(file.get_ref());
            let text = read_file(&path)
                .map_err(|error| source.wrong("policy_file", file, format!("{error:#}")))?;
            let name = path.display().to_string();
            let tree = Source {
                file: &name,
                text: &text,
            };
            Ok((site_policy(tree, &text, vos)?, Some(path)))
        }
        (None, Some(_)) => {
            let text = only_table(source.text, "shares");
            Ok((site_policy(source, &text, vos)?, None))
        }
        (None, None) => Ok((default_policy(vos), None)),
    }
}

fn site_policy(
    source: Source<'_>,
    text: &str,
    vos: &BTreeMap<String, VoId>,
) -> anyhow::Result<SitePolicy> {
    let policy = parse_tree(text, source.file)?.to_site_policy()?;
    for (alias, path) in policy.mounts() {
        if vos.contains_key(alias) {
            continue;
        }
        let known: Vec<&str> = vos.keys().map(String::as_str).collect();
        let quoted = format!("\"{path}\"");
        let place = source.text.find(&quoted).map(|at| at..at + quoted.len());
        let problem = format!("mounts `{alias}`, which has no id in [vos]");
        let help = format!(
            "add `{alias} = \"<VO id>\"` to [vos]; known there: {}",
            known.join(", ")
        );
        return Err(source
            .error(place, Some(path.as_str()), problem)
            .with_help(help)
            .into());
    }
    Ok(policy)
}

/// Every VO at `/alias`, all with the same share.
fn default_policy(vos: &BTreeMap<String, VoId>) -> SitePolicy {
    let entries = vos.keys().map(|alias| {
        let path = AccountPath::root()
            .child(alias)
            .expect("aliases were checked");
        (path, SiteEntry::mounted(Weight::whole(1), alias))
    });
    SitePolicy::new(entries.collect()).expect("one level, each VO once")
}
