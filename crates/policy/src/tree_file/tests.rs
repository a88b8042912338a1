use fairmesh_model::{Distance, PolicyMount, Scope, VoId};
use proptest::prelude::*;

use super::*;
use crate::testing::*;

fn shares(text: &str) -> Result<BTreeMap<AccountPath, ShareEntry>, TreeFileError> {
    parse_tree(text, "vo.toml")?.to_shares()
}

fn site(text: &str) -> Result<SitePolicy, TreeFileError> {
    parse_tree(text, "site.toml")?.to_site_policy()
}

#[test]
fn shares_are_the_decimals_that_were_written() {
    let text = "[shares]\n\"/a/x\" = 33.3333333\n\"/a\" = 0.1 # a tenth\n\"/b\" = { share = 12.50 }\n\
                \"/\" = 100\n[shares.\"/c\"]\nshare = +7\n";
    let shares = shares(text).expect("a tree");
    let read: Vec<_> = shares
        .iter()
        .map(|(path, e)| (path.as_str(), e.share.units()))
        .collect();
    assert_eq!(
        read,
        [
            ("/a", 1_000_000),
            ("/a/x", 333_333_333),
            ("/b", 125_000_000),
            ("/c", 70_000_000)
        ]
    );
}

#[test]
fn former_paths_and_periods_are_read_where_they_stand() {
    let text = "[shares]\n\"/top\" = { share = 60, was = [\"/higgs\", \"/old/x\"], since = \"2026-07-01\" }\n\
                \"/a\" = { share = 1000, was = \"/b\", since = 2026-07-02 }\n\"/*\" = 10\n";
    let read = shares(text).expect("a tree");
    let top = &read[&path("/top")];
    assert_eq!(top.was, [path("/higgs"), path("/old/x")]);
    let dates = ["/top", "/a", "/*"].map(|at| read[&path(at)].since.map(|date| date.to_string()));
    assert_eq!(
        dates,
        [
            Some("2026-07-01".to_owned()),
            Some("2026-07-02".to_owned()),
            None
        ]
    );
    assert_eq!(read[&path("/a")].share, Weight::whole(1_000));
    for (text, expected) in [
        (
            "\"/a\" = 1\n\"/b\" = { share = 1, was = [\"/a\"] }",
            "vo.toml:3:1: `/b`: was = \"/a\": that entry still exists",
        ),
        (
            "\"/a\" = { share = 1, was = [\"/b\"] }\n\"/b\" = { share = 1, was = [\"/a\"] }",
            "vo.toml:2:1: `/a`: was = \"/b\": the former paths form a cycle",
        ),
        (
            "\"/a\" = { share = 1, was = [\"/o\"] }\n\"/b\" = { share = 1, was = [\"/o\"] }",
            "vo.toml:3:1: `/b`: was = \"/o\": `/a` claims",
        ),
        (
            "\"/a\" = { share = 1, was = [3] }",
            "vo.toml:2:28: `/a.was`: expected the entry's former paths",
        ),
        (
            "\"/a\" = { share = 1, since = \"July\" }",
            "vo.toml:2:29: `/a.since`: write a date",
        ),
        (
            "\"/a\" = { share = 1, since = 7 }",
            "vo.toml:2:29: `/a.since`: expected a date",
        ),
        (
            "\"/*\" = 1\n\"/*/a\" = 1",
            "vo.toml:3:1: `/*/a`: `/*` stands for all accounts",
        ),
        (
            "\"/*\" = { share = 1, usage = \"local\" }",
            "vo.toml:2:1: `/*`: an entry `*` stands for all accounts without a line: remove `usage`",
        ),
    ] {
        let error = shares(&format!("[shares]\n{text}"))
            .expect_err(text)
            .to_string();
        assert!(error.starts_with(expected), "{error} instead of {expected}");
    }
}

#[test]
fn a_site_policy_says_what_the_owner_wants() {
    let text = "[shares]\n\"/\" = { distance = \"mix:0.5\" }\n\"/local\" = { share = 10, usage = \"local\" }\n\
                \"/VO-A\" = { share = 30, at_most = 45, mount = \"vo-a\", cap = 20, weight = 50, drop = false }\n";
    let site = site(text).expect("a site policy");
    let mount = Mount {
        alias: "vo-a".to_owned(),
        cap: Share::from_percent(20),
        weight: Share::from_percent(50),
        drop: false,
    };
    let expected = SiteEntry {
        at_most: Share::from_percent(45).expect("a percentage"),
        mount: Some(mount),
        ..SiteEntry::local(percent(30))
    };
    let root = SiteEntry {
        distance: Share::from_percent(50).map(|k| Distance::Mix { k }),
        ..SiteEntry::local(Weight::HUNDRED)
    };
    let local = SiteEntry {
        usage: Some(Scope::Local),
        ..SiteEntry::local(percent(10))
    };
    let expected = [("/", root), ("/VO-A", expected), ("/local", local)];
    let expected = expected.map(|(at, entry)| (path(at), entry));
    assert!(
        site.entries()
            .eq(expected.iter().map(|(at, entry)| (at, entry)))
    );
    assert_eq!(
        site.mounts().collect::<Vec<_>>(),
        [("vo-a", &path("/VO-A"))]
    );
}

#[test]
fn errors_say_where_and_what_to_do() {
    for (text, expected) in [
        ("[shares]\n/a = 3", "vo.toml:2:1: "),
        (
            "[shares]\n\"/a\" = 3\n\"/a\" = 4",
            "vo.toml:3:1: duplicate key",
        ),
        ("", "vo.toml:1:1: there is no table [shares]"),
        (
            "[share]\n",
            "vo.toml:1:2: `share`: unknown key; known here: [shares]",
        ),
        (
            "[shares]\n\"a\" = 3",
            "vo.toml:2:1: `a`: account path `a` does not begin",
        ),
        (
            "[shares]\n\"/a\" = { share = 30, at_most = 29 }\n\"/b\" = 70",
            "vo.toml:2:32: `/a.at_most`: at most 29 is less than the share of 30",
        ),
        (
            "[shares]\n\"/\" = { share = 100, at_most = 100 }",
            "vo.toml:2:7: `/`: `/` is the whole",
        ),
        (
            "[shares]\n\"/a\" = 10000000001",
            "vo.toml:2:8: `/a`: a share of 10000000001 is outside 0..10000000000: write",
        ),
        (
            "[shares]\n\"/a\" = -1",
            "vo.toml:2:8: `/a`: a share of -1 is outside",
        ),
        (
            "[shares]\n\"/a\" = 1e1",
            "vo.toml:2:8: `/a`: `1e1` is not a share",
        ),
        (
            "[shares]\n\"/a\" = 0x1f",
            "vo.toml:2:8: `/a`: `0x1f` is not a share",
        ),
        (
            "[shares]\n\"/a\" = nan",
            "vo.toml:2:8: `/a`: `nan` is not a share",
        ),
        (
            "[shares]\n\"/a\" = 1.00000001",
            "vo.toml:2:8: `/a`: `1.00000001` has more than 7",
        ),
        (
            "[shares]\n\"/a\" = \"30\"",
            "vo.toml:2:8: `/a`: expected a share such as 30",
        ),
        (
            "[shares]\n\"/\" = 99",
            "vo.toml:2:7: `/`: `/` is the whole: remove the line, or",
        ),
        (
            "[shares]\n\"/ä/b\" = 9",
            "vo.toml:2:1: `/ä/b`: the entry above it, `/ä`, is not listed",
        ),
        (
            "[shares]\n\"/ä\" = { share = 3, cop = 4 }",
            "vo.toml:2:21: `/ä.cop`: unknown key; known here: share, at_most, was, since, usage",
        ),
        (
            "[shares]\n\"/a\" = { cap = 4 }",
            "vo.toml:2:1: `/a`: there is no `share`",
        ),
        (
            "[shares]\n\"/a\" = { share = 3, cap = 4 }",
            "vo.toml:2:27: `/a`: `cap` is for site policies",
        ),
        (
            "[shares]\n\"/a\" = { share = 3, usage = \"grid\" }",
            "vo.toml:2:29: `/a.usage`: expected \"local\" (usage of this site) or \"global\"",
        ),
        (
            "[shares]\n\"/a\" = { share = 3, distance = \"mix:2\" }",
            "vo.toml:2:32: `/a.distance`: expected \"absolute\", \"relative\" or \"mix:K\"",
        ),
        (
            "[shares]\n\"/a\" = { share = 3, delegate = { keys = [\"5f\"] } }",
            "vo.toml:2:42: `/a.delegate.keys`: `5f` is not a key id",
        ),
        (
            "[shares]\n\"/a\" = { share = 3, delegate = { keys = [] } }",
            "vo.toml:2:32: `/a.delegate`: delegate: threshold 1 of 0 keys",
        ),
    ] {
        let error = shares(text).expect_err(text).to_string();
        assert!(
            error.starts_with(expected),
            "{text:?} gave {error:?}, not {expected:?}"
        );
    }
}

#[test]
fn a_key_that_a_delegate_lists_twice_is_named() {
    let (one, other) = (key(1).key_id(), key(2).key_id());
    let text = format!(
        "[shares]\n\"/a\" = {{ share = 3, delegate = {{ keys = [\"{one}\", \"{other}\",\n\"{one}\"] }} }}"
    );
    let error = shares(&text).expect_err("twice").to_string();
    let expected = format!("vo.toml:3:1: `/a.delegate.keys`: {one} is listed twice");
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn a_site_policy_that_contradicts_itself_is_refused_by_line() {
    let mount = "\"/m\" = { share = 3, mount = \"vo\" }";
    for (text, expected) in [
        (
            format!("{mount}\n\"/m/x\" = 4"),
            "site.toml:3:1: `/m/x`: it lies below `/m`",
        ),
        (
            format!("{mount}\n\"/n\" = {{ share = 3, mount = \"vo\" }}"),
            "site.toml:3:1: `/n`: `vo` is mounted at `/m` already",
        ),
        (
            "\"/n\" = { share = 3, drop = true }".to_owned(),
            "site.toml:2:28: `/n`: `drop` changes a mount",
        ),
        (
            "\"/m\" = { share = 3, mount = \"vo\", distance = \"relative\" }".to_owned(),
            "site.toml:2:1: `/m`: below a mount the VO says by whose usage",
        ),
        (
            format!("\"/\" = {{ usage = \"global\" }}\n{mount}\n\"/n\" = 4"),
            "site.toml:4:1: `/n`: `/` has `usage = \"global\"`, and this entry is no VO's",
        ),
        (
            "\"/\" = { share = 100, mount = \"vo\", cap = 4 }".to_owned(),
            "site.toml:2:1: `/`: `/` is the whole site",
        ),
    ] {
        let text = format!("[shares]\n{text}");
        let error = site(&text).expect_err(&text).to_string();
        assert!(
            error.starts_with(expected),
            "{text:?} gave {error:?}, not {expected:?}"
        );
    }
}

#[test]
fn entries_below_a_delegation_are_refused_by_line() {
    let id = key(1).key_id();
    let text = format!(
        "[shares]\n\"/a\" = {{ share = 3, delegate = {{ keys = [\"{id}\"] }} }}\n\"/a/x\" = 4"
    );
    let mount =
        format!("[shares]\n\"/a\" = {{ share = 3, mount = {{ vo = \"{id}\", path = \"/p\" }} }}");
    let policy = shares(&mount).expect("a tree")[&path("/a")].mount.clone();
    assert_eq!(policy.map(|mount| mount.path), Some(path("/p")));
    for text in [
        format!("{mount}\n\"/a/x\" = 4"),
        format!("{mount}\n\"/\" = {{ mount = {{ vo = \"{id}\" }} }}"),
    ] {
        assert!(shares(&text).is_err(), "{text}");
    }
    let error = site(&mount)
        .expect_err("the owner mounts by alias")
        .to_string();
    assert!(error.contains("is for signed share policies"), "{error}");
    let error = shares(&text).expect_err("below a delegation").to_string();
    assert!(
        error.starts_with("vo.toml:3:1: `/a/x`: it lies below `/a`, which"),
        "{error}"
    );
}

fn any_entries() -> impl Strategy<Value = BTreeMap<AccountPath, ShareEntry>> {
    let name = "[a-zA-Z0-9 _.\"\\\\'#=é-]{1,8}"
        .prop_filter("no dots alone", |name| name != "." && name != "..");
    let level = (
        prop::option::of(prop::bool::ANY),
        prop::option::of(0..=Share::ONE),
    );
    let delegate = prop::option::of((1..=3u8, 1..=2u32));
    let entry = (name, 0..=Share::ONE, delegate, level);
    proptest::collection::vec(entry, 0..12).prop_map(|entries| {
        let mut shares: BTreeMap<AccountPath, ShareEntry> = BTreeMap::new();
        for (name, units, delegate, (usage, k)) in entries {
            let share = Share::from_units(units).expect("at most the whole");
            let delegate = delegate.map(|(seed, threshold)| role(&[seed, seed + 1], threshold));
            let plain = |(_, entry): &(&AccountPath, &ShareEntry)| {
                entry.delegate.is_none() && entry.mount.is_none()
            };
            let parent = shares
                .iter()
                .filter(plain)
                .map(|(path, _)| path.clone())
                .next_back();
            let parent = parent
                .filter(|path| path.depth() < 9)
                .unwrap_or(AccountPath::root());
            let at = parent.child(&name).expect("short");
            if !shares.keys().any(|path| path.starts_with(&at)) {
                let at_most = Share::from_units(share.units().midpoint(Share::ONE));
                let at_most = at_most.filter(|_| units % 3 == 0);
                let mounts = delegate.is_none() && units % 5 == 0;
                let renamed = delegate.is_none() && !mounts && units % 7 == 0;
                let was = renamed.then(|| path(&format!("/gone{}", shares.len())));
                let entry = ShareEntry {
                    share: share.into(),
                    was: was.into_iter().collect(),
                    since: (units % 2 == 0).then_some(fairmesh_model::Date(20_635)),
                    at_most,
                    usage: usage.map(|local| if local { Scope::Local } else { Scope::Global }),
                    distance: k.and_then(Share::from_units).map(|k| Distance::Mix { k }),
                    mount: mounts.then(|| PolicyMount {
                        vo: VoId::from_bytes([9; 32]),
                        path: at.clone(),
                    }),
                    delegate,
                };
                shares.insert(at, entry);
            }
        }
        shares
    })
}

/// Found by a fuzz campaign: a library that reads TOML panicked where keys and values are all missing.
#[test]
fn keys_that_are_missing_twice_are_an_error() {
    assert!(parse_tree("==\n.=", "any.toml").is_err());
}

proptest! {
    #[test]
    fn what_is_written_reads_back_the_same(entries in any_entries(), says in any::<bool>()) {
        let mut policy = policy(VoId::from_bytes([1; 32]), "/", 1, &[]);
        policy.shares = entries;
        policy.usage = says.then_some(Scope::Local);
        let text = to_toml(&policy);
        prop_assert_eq!(text.lines().count(), policy.shares.len() + 1 + usize::from(says));
        let read = parse_tree(&text, "vo.toml").expect("a tree");
        prop_assert_eq!(read.of_root(), (policy.usage, policy.distance));
        prop_assert_eq!(read.to_shares(), Ok(policy.shares), "{}", text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "(\\[shares\\]\n)?[ -~\n]{0,80}") {
        let _ = parse_tree(&text, "any.toml").map(|file| (file.to_shares().is_ok(), file.to_site_policy().is_ok()));
    }
}
