//! Who sees what, as rows.

use std::sync::atomic::{AtomicUsize, Ordering};

use fairmesh_model::{Incarnation, MonoTime, Now, SigningKey, WallTime};
use fairmesh_site::Site;

use super::*;
use crate::config::Config;

const SHARES: &str = "[site]\nname = \"s\"\n\
    [[identity]]\naccount = \"p1\"\npath = \"/lab/p1/{user}\"\n\
    [[identity]]\naccount = \"p2\"\npath = \"/lab/p2/{user}\"\n\
    [[identity]]\npath = \"/lab/{account}\"\n\
    [shares]\n\"/lab\" = 100\n\"/lab/p1\" = 1\n\"/lab/p1/ann\" = 1\n\"/lab/p1/bob\" = 1\n\"/lab/p2\" = 1\n\
    \"/lab/p2/ann\" = 1\n\"/lab/p2/eve\" = 1\n\"/lab/pool\" = 1\n";

fn view() -> Arc<View> {
    let no_file = |path: &std::path::Path| anyhow::bail!("no file {}", path.display());
    let config = Config::parse(SHARES, std::path::Path::new("f.toml"), &no_file).expect("valid");
    let now = Now {
        mono: MonoTime(0),
        wall: WallTime(1_800_000_000_000),
    };
    let key = SigningKey::from_secret(&[7; 32]);
    Site::new(config.to_site_config(), key, Incarnation(1), 1, now).view()
}

fn privacy(hide: &[PrivateData]) -> Arc<Privacy> {
    let path = AccountPath::parse("/lab/p2").expect("a path");
    Arc::new(Privacy {
        hide: hide.iter().copied().collect(),
        coordinators: BTreeMap::from([(path, BTreeSet::from(["carol".to_owned()]))]),
    })
}

fn visibility(hide: &[PrivateData], reader: Reader, view: Arc<View>) -> Visibility {
    Visibility::new(privacy(hide), reader, view, |user, view| {
        own_entries(user, view)
    })
}

fn seen(reader: Reader, hide: &[PrivateData], what: PrivateData) -> Vec<String> {
    let view = view();
    let visibility = visibility(hide, reader, Arc::clone(&view));
    let one_by_one =
        entries_of(&view).filter(|entry| visibility.sees_entry(what, view.reader().path(*entry)));
    let one_by_one = one_by_one.map(|entry| u32::try_from(entry.index()).expect("few"));
    let entries = visibility.entries(what);
    assert_eq!(entries, one_by_one.collect::<BTreeSet<u32>>());
    let entries = entries.into_iter().skip(1);
    let path = |entry| {
        view.reader()
            .path(view.reader().entry_at(entry).expect("there"))
            .to_string()
    };
    entries.map(path).collect()
}

#[test]
fn a_user_sees_what_is_his_what_he_coordinates_and_what_lies_above() {
    let user = |name: &str| Reader::User(name.to_owned());
    let usage = [PrivateData::Usage];
    let p2 = ["/lab", "/lab/p2", "/lab/p2/*", "/lab/p2/ann", "/lab/p2/eve"];
    let all = seen(Reader::All, &usage, PrivateData::Usage);
    // With the entries `*` of four levels.
    assert_eq!(all.len(), 12);
    for (reader, expected) in [
        (user("bob"), &["/lab", "/lab/p1", "/lab/p1/bob"][..]),
        (
            user("ann"),
            &["/lab", "/lab/p1", "/lab/p1/ann", "/lab/p2", "/lab/p2/ann"],
        ),
        (user("carol"), &p2),
        // The entry of a whole account is nobody's own, whatever he calls himself.
        (user("pool"), &[]),
        (user("nobody"), &[]),
        (Reader::Unknown, &[]),
    ] {
        let of = format!("{reader:?}");
        assert_eq!(
            seen(reader.clone(), &usage, PrivateData::Usage),
            expected,
            "{of}"
        );
        assert_eq!(
            seen(reader.clone(), &usage, PrivateData::Priority),
            all,
            "{of}"
        );
        assert_eq!(seen(reader, &[], PrivateData::Usage), all, "{of}");
    }
}

#[test]
fn usage_without_an_entry_is_its_users_own() {
    let of = |user: &str| Account {
        vo: None,
        path: AccountPath::parse(&format!("/lab/p1/{user}")).expect("a path"),
    };
    let dave = Reader::User("dave".to_owned());
    let sight_of = |reader| visibility(&[PrivateData::Usage], reader, view());
    let visibility = sight_of(dave);
    assert!(visibility.sees(PrivateData::Usage, &of("dave")));
    assert!(!visibility.sees(PrivateData::Usage, &of("eve")));
    assert!(!visibility.sees_entry(
        PrivateData::Usage,
        &AccountPath::parse("/lab/p1").expect("a path")
    ));
    // What is charged at a group itself is nobody's below it.
    let ann = Reader::User("ann".to_owned());
    let visibility = sight_of(ann);
    let group = Account {
        vo: None,
        path: AccountPath::parse("/lab/p1").expect("a path"),
    };
    assert!(visibility.sees(PrivateData::Usage, &group));
    assert!(!visibility.sees_alone(PrivateData::Usage, &group));
}

#[tokio::test]
async fn whoever_has_been_met_is_not_asked_for_while_others_wait() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let directory = |uid: u32| {
        ASKED.fetch_add(1, Ordering::Relaxed);
        (uid == 4_001).then(|| "ann".to_owned())
    };
    for (hide, asked) in [(&[][..], 0), (&[PrivateData::Usage], 1)] {
        let access = Arc::new(Access {
            privacy: privacy(hide),
            ..Access::default()
        });
        let resolver =
            VisibilityResolver::asking(CurrentAccess::new(move || Arc::clone(&access)), directory);
        // Who sees all, and whom the kernel does not name, need no name.
        for uid in [Some(0), None, Some(4_001)] {
            resolver.meet(uid).await;
        }
        assert_eq!(ASKED.load(Ordering::Relaxed), asked);
        let visibility = resolver.visibility(Some(4_001), view()).await;
        assert_eq!(visibility.is("ann"), asked == 1);
        assert_eq!(ASKED.load(Ordering::Relaxed), asked);
    }
}

#[tokio::test]
async fn what_is_a_users_own_is_worked_out_once_for_each_tree() {
    let directory = |uid: u32| Some(format!("user-{uid}")).filter(|_| uid > 4_000);
    let access = Arc::new(Access {
        privacy: privacy(&[PrivateData::Usage]),
        ..Access::default()
    });
    let resolver =
        VisibilityResolver::asking(CurrentAccess::new(move || Arc::clone(&access)), directory);
    let own =
        async |uid, view: &Arc<View>| resolver.visibility(Some(uid), Arc::clone(view)).await.own;
    let (view, next) = (view(), view());
    let first = own(4_001, &view).await;
    for again in [
        own(4_001, &view).await,
        resolver
            .clone()
            .visibility(Some(4_001), Arc::clone(&view))
            .await
            .own,
    ] {
        assert!(Arc::ptr_eq(&first, &again));
    }
    assert!(
        !Arc::ptr_eq(&first, &own(4_002, &view).await),
        "another user"
    );
    let later = own(4_001, &next).await;
    assert!(!Arc::ptr_eq(&first, &later), "another tree");
    assert!(Arc::ptr_eq(&later, &own(4_001, &next).await));
}
