//! Who leaves a VO with a charter, who joins, and whose key is replaced.
//!
//! Invariant: a site is the same by its id; one of the same name and another id is the same site under a new key.
//! Deliberately not here: keys of officers and terms, which `show` and `diff` compare.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use fairmesh_model::{Charter, ContentHash, MemberSite, SiteId};
use serde::Serialize;

use super::document::{PolicyDocument, as_text, read_bytes};
use super::draft::Draft;

/// What a charter does to one site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub(super) enum MemberChange {
    Leaves { name: String, id: Id },
    Joins { name: String, id: Id, cpus: u32 },
    NewKey { name: String, old_id: Id, id: Id },
    Changes { name: String, id: Id },
}

/// A site's id, which a program reads as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(SiteId);

impl Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl fmt::Display for MemberChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaves { name, id } => write!(
                f,
                "{name} leaves ({}): its usage stops counting",
                id.0.checked()
            ),
            Self::Joins { name, id, cpus } => {
                write!(f, "{name} joins ({}) with {cpus} CPUs", id.0.checked())
            }
            Self::NewKey { name, old_id, id } => write!(
                f,
                "{name} changes its key from {} to {}: its usage counts again when its node starts once with \
                 `--take-over {}`",
                old_id.0.short(),
                id.0.checked(),
                old_id.0
            ),
            Self::Changes { name, .. } => write!(f, "{name} changes its lines, and keeps its key"),
        }
    }
}

/// What `new` does to the sites of `old`.
pub(super) fn changes(old: &Charter, new: &Charter) -> Vec<MemberChange> {
    let (before, after) = (by_id(&old.sites), by_id(&new.sites));
    let joining = new
        .sites
        .iter()
        .filter(|site| !before.contains_key(&site.site));
    let names = joining.clone().map(|site| (site.name.as_str(), site.site));
    let mut names: BTreeMap<&str, SiteId> = names.collect();
    let (mut changes, mut succeed) = (Vec::new(), BTreeSet::new());
    for site in &old.sites {
        let (name, id) = (site.name.clone(), Id(site.site));
        let change = match after.get(&site.site) {
            Some(same) if *same == site => continue,
            Some(same) => MemberChange::Changes {
                name: same.name.clone(),
                id,
            },
            None => match names.remove(site.name.as_str()) {
                Some(next) => {
                    succeed.insert(next);
                    MemberChange::NewKey {
                        name,
                        old_id: id,
                        id: Id(next),
                    }
                }
                None => MemberChange::Leaves { name, id },
            },
        };
        changes.push(change);
    }
    let joins = joining.filter(|site| !succeed.contains(&site.site));
    changes.extend(joins.map(|site| MemberChange::Joins {
        name: site.name.clone(),
        id: Id(site.site),
        cpus: site.cores,
    }));
    changes
}

fn by_id(sites: &[MemberSite]) -> BTreeMap<SiteId, &MemberSite> {
    sites.iter().map(|site| (site.site, site)).collect()
}

/// What the newest charter in `new` does to the sites of the newest in `old`; `None` where other files are among them.
pub(super) fn planned(
    old: &[PathBuf],
    new: &[PathBuf],
) -> anyhow::Result<Option<Vec<MemberChange>>> {
    let newest = |files: &[PathBuf]| -> anyhow::Result<Option<Charter>> {
        let charters = files.iter().map(|file| charter_in(file));
        let charters: Option<Vec<Charter>> = charters.collect::<anyhow::Result<_>>()?;
        Ok(charters.and_then(|all| all.into_iter().max_by_key(|charter| charter.version)))
    };
    let both = newest(old)?.zip(newest(new)?);
    Ok(both.map(|(old, new)| changes(&old, &new)))
}

/// Puts `site` into a charter: in the place of the entry of its id or, under a new key, of its name. Returns what
/// that does.
pub(super) fn put(charter: &mut Charter, site: MemberSite) -> Option<MemberChange> {
    let sites = &charter.sites;
    let by_name = || sites.iter().position(|other| other.name == site.name);
    let place = sites.iter().position(|other| other.site == site.site);
    let Some(place) = place.or_else(by_name) else {
        charter.sites.push(site);
        return None;
    };
    let before = std::mem::replace(&mut charter.sites[place], site);
    let (site, name) = (&charter.sites[place], before.name);
    Some(match before.site == site.site {
        true => MemberChange::Changes {
            name,
            id: Id(site.site),
        },
        false => MemberChange::NewKey {
            name,
            old_id: Id(before.site),
            id: Id(site.site),
        },
    })
}

/// The charter in a file, a draft or a document; `None` where it is something else.
pub(super) fn charter_in(file: &Path) -> anyhow::Result<Option<Charter>> {
    let bytes = read_bytes(file)?;
    if let Some(text) = as_text(&bytes) {
        let is_charter = text
            .parse()
            .is_ok_and(|table: toml::Table| table.contains_key("charter"));
        if !is_charter {
            return Ok(None);
        }
        return Ok(match Draft::parse(text, &file.display().to_string())? {
            Draft::Charter(charter) => Some(*charter),
            _ => None,
        });
    }
    Ok(match PolicyDocument::read(file)? {
        PolicyDocument::Charter(charter) => Some(charter.claimed().clone()),
        _ => None,
    })
}

/// The charter with this hash among the documents in a folder, where officers keep those before.
pub(super) fn charter_beside(folder: &Path, hash: ContentHash) -> Option<Charter> {
    let files = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    let mut documents: Vec<PathBuf> = files
        .filter(|file| file.extension().is_some_and(|of| of == "cbor"))
        .collect();
    documents.sort();
    documents
        .iter()
        .find_map(|file| match PolicyDocument::read(file).ok()? {
            PolicyDocument::Charter(charter) if charter.hash() == hash => {
                Some(charter.claimed().clone())
            }
            _ => None,
        })
}
