//! `[privacy]`: what users of the machine see of each other.
//!
//! Invariant: without the table nothing is hidden. Deliberately not here: what each word hides (`crate::privacy`), and
//! whether the users exist.

use std::collections::{BTreeMap, BTreeSet};

use fairmesh_model::AccountPath;
use serde::Deserialize;
use toml::Spanned;

use super::names::{RawWriter, is_user_name, users};
use super::text::{FileError, Source};
use crate::privacy::{Privacy, PrivateData};
use crate::users::Writer;

/// `[privacy]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPrivacy {
    #[serde(default)]
    hide: BTreeSet<PrivateData>,
    #[serde(default)]
    readers: Vec<Spanned<RawWriter>>,
    /// Users by entry of the share tree.
    #[serde(default)]
    coordinators: BTreeMap<Spanned<String>, Vec<Spanned<String>>>,
}

/// What is hidden, and who sees all the same.
pub(super) fn checked(
    source: Source<'_>,
    raw: &RawPrivacy,
) -> Result<(Privacy, Vec<Writer>), FileError> {
    let mut coordinators: BTreeMap<AccountPath, BTreeSet<String>> = BTreeMap::new();
    for (path, names) in &raw.coordinators {
        let help = "write the path of an entry of the share tree: \"/VO-A/P-A1\" = [\"carol\"]";
        let key = "privacy.coordinators";
        let parsed = source.parsed(key, path, help)?;
        for name in names {
            if !is_user_name(name.get_ref()) {
                let problem = format!("`{}` is not a user name", name.get_ref().escape_debug());
                return Err(source.wrong(key, name, problem));
            }
        }
        let names = names.iter().map(|name| name.get_ref().clone());
        coordinators.entry(parsed).or_default().extend(names);
    }
    let privacy = Privacy {
        hide: raw.hide.clone(),
        coordinators,
    };
    Ok((privacy, users(source, "privacy.readers", &raw.readers)?))
}

#[cfg(test)]
mod tests {
    use crate::config::tests::with_physics;
    use crate::privacy::PrivateData;
    use crate::users::Writer;

    #[test]
    fn what_is_hidden_from_whom_is_read_with_its_mistakes() {
        let none = with_physics("").expect("valid");
        assert!(none.privacy.hide.is_empty() && none.readers.is_empty());
        let text = "[privacy]\nhide = [\"usage\", \"jobs\"]\nreaders = [\"helpdesk\", 990]\n\
                    [privacy.coordinators]\n\"/physics/p1\" = [\"carol\"]\n";
        let config = with_physics(text).expect("valid");
        assert!(config.privacy.hide.contains(&PrivateData::Jobs));
        assert!(!config.privacy.hide.contains(&PrivateData::Priority));
        assert_eq!(config.readers[1], Writer::Uid(990));
        let (path, users) = config.privacy.coordinators.first_key_value().expect("one");
        assert_eq!(
            (path.as_str(), users.contains("carol")),
            ("/physics/p1", true)
        );
        for (wrong, why) in [
            (
                "hide = [\"usages\"]",
                "unknown variant `usages`, expected one of `usage`, `jobs`, `priority`",
            ),
            ("readers = [\"a:b\"]", "privacy.readers"),
            (
                "[privacy.coordinators]\n\"p1\" = [\"carol\"]",
                "privacy.coordinators",
            ),
            (
                "[privacy.coordinators]\n\"/p1\" = [\"a b\"]",
                "`a b` is not a user name",
            ),
            ("hidden = []", "hidden"),
        ] {
            let error = with_physics(&format!("[privacy]\n{wrong}\n")).expect_err(wrong);
            assert!(error.contains(why) && error.contains("f.toml:"), "{error}");
        }
    }
}
