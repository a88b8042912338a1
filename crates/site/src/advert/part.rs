//! What a site says of its free CPUs, as a part of its head.
//!
//! Invariant: a part that passes [`check`] is read by [`read`]; nobody has more free than there is, and nothing
//! was so after its head was signed. What a later release adds is passed over.
//! Deliberately not here: machines, which are in the description.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairmesh_broker::utility::CLASSES_MAX;
use fairmesh_broker::{SiteView, Standing};
use fairmesh_gossip::{Head, PartKey, Replica};
use fairmesh_model::{Millis, Now, SiteId, WallTime, cbor, is_visible};
use serde::{Deserialize, Serialize};

use crate::kinds::ADVERT;

/// Largest advert: [`CLASSES_MAX`] classes with names of [`NAME_BYTES_MAX`], and a few numbers.
const BYTES_MAX: usize = 8 << 10;

/// Longest name of a class: as in price lists.
const NAME_BYTES_MAX: usize = 64;

/// Most CPUs of a site that are believed: as many as a charter can list.
const CPUS_MAX: u64 = u32::MAX as u64;

/// What a site says of itself to the members of one VO.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Advert {
    /// When it was so, by the site's own clock.
    #[serde(rename = "a")]
    pub at: WallTime,
    /// CPUs of all machines.
    #[serde(rename = "t")]
    pub total: u64,
    /// CPUs that nobody holds, and that are not kept for a guarantee of another VO.
    #[serde(rename = "f")]
    pub free: u64,
    /// CPUs that waiting jobs ask for, whosever they are.
    #[serde(rename = "w", default)]
    pub waiting: u64,
    /// How long the batch system says that a job would wait.
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Millis>,
    /// What the VO may have there and has; `None` where nothing is promised to it.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    /// Free CPUs of each machine class, where the site knows which machines its jobs run on.
    #[serde(rename = "c", default, skip_serializing_if = "is_empty")]
    pub classes: Arc<BTreeMap<String, u64>>,
    /// Whether the owner takes jobs of the VO that other members pass on.
    #[serde(rename = "p", default, skip_serializing_if = "is_false")]
    pub takes: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_empty(classes: &Arc<BTreeMap<String, u64>>) -> bool {
    classes.is_empty()
}

impl Advert {
    /// What a broker of `vo` makes of it. What is not known is left as it is by default.
    pub fn view(&self, name: String, vo: &Arc<str>, now: Now) -> SiteView {
        let mut view = SiteView {
            name,
            total: self.total,
            free: Some(self.free),
            waiting: self.waiting,
            wait: self.wait,
            age: Some(now.wall.since(self.at)),
            ..SiteView::default()
        };
        let standing = self.standing.map(Box::new);
        view.vos.extend(standing.map(|of| (Arc::clone(vo), of)));
        view
    }

    /// When this was so, and for how long the VO had been over what it may have.
    pub(super) fn over(&self) -> Option<(WallTime, Millis)> {
        Some((self.at, self.standing?.over_for?))
    }

    /// Says for how long the VO has been over what it may have, by the word before this one.
    pub(super) fn go_on_from(&mut self, before: Option<(WallTime, Millis)>) {
        let Some(standing) = self.standing.as_mut().filter(|of| of.exceeds()) else {
            return;
        };
        let since = |(at, over): (WallTime, Millis)| over.0.saturating_add(self.at.since(at).0);
        standing.over_for = Some(Millis(before.map_or(0, since)));
    }

    fn problem(&self) -> Option<String> {
        let Self { total, free, .. } = self;
        if !(1..=CPUS_MAX).contains(total) {
            return Some(format!("{total} CPUs are no site's"));
        }
        if free > total {
            return Some(format!(
                "more CPUs are free ({free}) than there are ({total})"
            ));
        }
        if self.classes.len() > CLASSES_MAX {
            return Some(format!("more than {CLASSES_MAX} machine classes"));
        }
        let is_bad = |name: &&String| {
            name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_visible)
        };
        if let Some(bad) = self.classes.keys().find(is_bad) {
            return Some(format!(
                "bad name of a machine class: `{}`",
                bad.escape_debug()
            ));
        }
        let beyond = self.classes.iter().find(|(_, of)| *of > total);
        beyond.map(|(name, of)| format!("{of} CPUs of class `{name}` are free, of {total} in all"))
    }
}

/// The part of an advert; none where there is nothing to say.
pub(crate) fn parts(advert: Option<&Advert>) -> BTreeMap<PartKey, Vec<u8>> {
    let part = advert.map(|advert| (PartKey::new(ADVERT, &[0]), cbor::to_vec(advert)));
    part.into_iter().collect()
}

/// The advert that a site has published last, in any of its starts.
pub(crate) fn newest(replica: &Replica, site: SiteId) -> Option<Advert> {
    let (_, bytes) = replica.newest_parts(site, ADVERT).next()?;
    read(bytes).ok()
}

/// Reads an advert.
///
/// # Errors
/// What is wrong with it.
pub fn read(bytes: &[u8]) -> Result<Advert, String> {
    let advert: Advert = cbor::from_slice(bytes, BYTES_MAX).map_err(|error| error.to_string())?;
    match advert.problem() {
        Some(problem) => Err(problem),
        None => Ok(advert),
    }
}

/// How much of a head's budget of rows a part takes.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(head: &Head, key: &[u8], bytes: &[u8]) -> Result<u32, String> {
    let wrong = |what: String| format!("its advert: {what}");
    if key != [0] {
        return Err(wrong("there is one, and it has another name".to_owned()));
    }
    let advert = read(bytes).map_err(wrong)?;
    if advert.at > head.at {
        return Err(wrong("it is of a time after its head".to_owned()));
    }
    Ok(1 + u32::try_from(advert.classes.len()).unwrap_or(u32::MAX - 1))
}

#[cfg(test)]
mod tests {
    use fairmesh_model::{ContentHash, Incarnation, Seq, SigningKey, VoId};

    use super::*;

    fn advert() -> Advert {
        Advert {
            at: WallTime(7),
            total: 40,
            free: 3,
            waiting: 9,
            wait: Some(Millis(5)),
            standing: Some(Standing::default()),
            classes: Arc::new(BTreeMap::from([("fat".to_owned(), 2)])),
            takes: true,
        }
    }

    fn checked(advert: &Advert) -> Result<u32, String> {
        let head = Head {
            vo: VoId::from_bytes([2; 32]),
            site: SigningKey::from_secret(&[1; 32]).site_id(),
            incarnation: Incarnation(1),
            seq: Seq(1),
            at: WallTime(7),
            root: ContentHash::of(b""),
            covers: Vec::new(),
        };
        let parts = parts(Some(advert));
        let (key, bytes) = parts.first_key_value().expect("one");
        check(&head, key.key(), bytes)
    }

    #[test]
    fn what_is_written_is_read_and_nonsense_is_refused_by_name() {
        assert_eq!(checked(&advert()), Ok(2));
        let bytes = cbor::to_vec(&advert());
        assert_eq!(read(&bytes), Ok(advert()));
        type Change = fn(&mut Advert);
        let rows: [(Change, &str); 8] = [
            (
                |of| of.free = 41,
                "more CPUs are free (41) than there are (40)",
            ),
            (|of| of.total = 0, "0 CPUs are no site's"),
            (|of| of.total = 1 << 32, "4294967296 CPUs are no site's"),
            (|of| of.at = WallTime(8), "after its head"),
            (
                |of| _ = Arc::make_mut(&mut of.classes).insert("a\u{1b}".to_owned(), 1),
                "bad name of a machine class: `a\\u{1b}`",
            ),
            (
                |of| _ = Arc::make_mut(&mut of.classes).insert("a".repeat(65), 1),
                "bad name",
            ),
            (
                |of| _ = Arc::make_mut(&mut of.classes).insert("thin".to_owned(), 41),
                "41 CPUs of class `thin`",
            ),
            (
                |of| of.classes = Arc::new((0..65).map(|index| (format!("c{index}"), 1)).collect()),
                "more than 64 machine classes",
            ),
        ];
        for (change, expected) in rows {
            let mut wrong = advert();
            change(&mut wrong);
            let error = checked(&wrong).expect_err(expected);
            assert!(
                error.starts_with("its advert: ") && error.contains(expected),
                "{error}"
            );
        }
    }

    #[test]
    fn the_fullest_advert_is_within_its_size_and_what_is_added_later_is_passed_over() {
        let named = |index: usize| format!("{index:0>64}");
        let full = Advert {
            total: CPUS_MAX,
            free: CPUS_MAX,
            classes: Arc::new(
                (0..CLASSES_MAX)
                    .map(|index| (named(index), CPUS_MAX))
                    .collect(),
            ),
            ..advert()
        };
        assert!(checked(&full).is_ok());
        #[derive(Serialize)]
        struct Later {
            a: u64,
            f: u64,
            t: u64,
            zz: &'static str,
        }
        let later = cbor::to_vec(&Later {
            a: 1,
            f: 2,
            t: 3,
            zz: "new",
        });
        assert_eq!(read(&later).map(|of| (of.free, of.total)), Ok((2, 3)));
        assert!(read(&later[..later.len() - 1]).is_err());
    }
}
