//! Who is charged, rule by rule, and that the index answers as a search through all rules would.

use fairmesh_model::{Origin, VoId};

use super::*;

fn origin(user: &str, account: Option<&str>) -> Origin {
    Origin {
        user: Some(user.to_owned()),
        account: account.map(str::to_owned),
        ..Origin::default()
    }
}

fn map() -> IdentityMap {
    let vo = Some(VoId::from_bytes([7; 32]));
    IdentityMap::new(vec![
        Rule {
            user: Some(Pattern::parse("root")),
            path: "/local".to_owned(),
            ..Rule::default()
        },
        Rule {
            account: Some(Pattern::parse("atlas*")),
            vo,
            path: "/{account}/{user}".to_owned(),
            ..Rule::default()
        },
        Rule {
            account: Some(Pattern::parse("*")),
            path: "/local/{account}".to_owned(),
            ..Rule::default()
        },
    ])
}

#[test]
fn a_rule_behind_one_that_takes_all_its_jobs_is_hidden() {
    let rule = |user: &str, account: &str, path: &str| {
        let pattern = |text: &str| Some(Pattern::parse(text)).filter(|_| !text.is_empty());
        Rule {
            user: pattern(user),
            account: pattern(account),
            path: path.to_owned(),
            ..Rule::default()
        }
    };
    let rows = [
        (
            rule("", "*", "/{account}/{user}"),
            rule("", "cms", "/x"),
            true,
        ),
        (rule("", "cms*", "/x"), rule("ann", "cms-prod*", "/x"), true),
        (rule("*", "", "/x"), rule("", "cms", "/x"), true),
        (rule("", "", "/x/{user}"), rule("ann", "", "/x"), true),
        (rule("", "cms-prod*", "/x"), rule("", "cms*", "/x"), false),
        // A job without an account comes to the later one.
        (rule("", "*", "/x"), rule("ann", "", "/x"), false),
        (rule("", "", "/{account}"), rule("ann", "", "/x"), false),
        (rule("root", "", "/x"), rule("", "*", "/x"), false),
    ];
    for (before, later, is_hidden) in rows {
        assert_eq!(before.hides(&later), is_hidden, "{before:?} {later:?}");
    }
}

#[test]
fn the_first_rule_that_holds_decides() {
    let path = |origin| {
        map()
            .resolve(&origin)
            .map(|account| account.path.to_string())
    };
    assert_eq!(
        path(origin("root", Some("atlas"))).as_deref(),
        Some("/local")
    );
    assert_eq!(
        path(origin("ann", Some("atlas-prod"))).as_deref(),
        Some("/atlas-prod/ann")
    );
    assert_eq!(
        path(origin("bob", Some("bio"))).as_deref(),
        Some("/local/bio")
    );
    assert_eq!(path(origin("eve", None)), None);
}

#[test]
fn an_account_is_found_by_its_user_alone() {
    let may = |user: &str, vo, path: &str| {
        let path = AccountPath::parse(path).expect("a path");
        map().may_charge(user, &Account { vo, path })
    };
    let vo = Some(VoId::from_bytes([7; 32]));
    assert!(may("ann", vo, "/atlas-prod/ann"));
    assert!(may("a/b", vo, "/atlas/a|b"));
    assert!(may("a|b", vo, "/atlas/a\u{fffd}7cb"));
    assert!(!may("a|b", vo, "/atlas/a|b"));
    assert!(!may("bob", vo, "/atlas-prod/ann"), "another's");
    assert!(!may("ann", vo, "/cms/ann"), "no rule gives that account");
    assert!(!may("ann", None, "/atlas-prod/ann"), "another tree");
    assert!(!may("root", vo, "/atlas/root"), "an earlier rule holds");
    assert!(may("root", None, "/local"));
}

#[test]
fn an_account_that_nobody_owns_is_no_others() {
    let vo = Some(VoId::from_bytes([7; 32]));
    for (user, vo, path, expected) in [
        ("bob", vo, "/atlas-prod/ann", true),
        ("ann", vo, "/atlas-prod/ann", false),
        ("a/b", vo, "/atlas/a|b", false),
        ("bob", vo, "/atlas/a|b", true),
        // Root's, by a rule of his own.
        ("bob", None, "/local", true),
        ("root", None, "/local", false),
        ("bob", None, "/local/bio", false),
        ("bob", vo, "/cms/ann", false),
    ] {
        let account = Account {
            vo,
            path: AccountPath::parse(path).expect("a path"),
        };
        let is_of_another = map().is_of_another(user, &account);
        assert_eq!(is_of_another, expected, "{user} {path}");
    }
}

#[test]
fn a_name_that_looks_like_a_placeholder_is_a_name() {
    let rule = Rule {
        path: "/{x}/{user}-{account}".to_owned(),
        ..Rule::default()
    };
    let account = IdentityMap::new(vec![rule]).resolve(&origin("{account}", Some("a/b")));
    let path = account.map(|account| account.path.to_string());
    assert_eq!(path.as_deref(), Some("/{x}/{account}-a|b"));
}

#[test]
fn a_name_cannot_break_out_of_its_path() {
    let account = map()
        .resolve(&origin("../../VO-B", Some("atlas")))
        .expect("mapped");
    assert_eq!(account.path.to_string(), "/atlas/..|..|VO-B");
    assert_eq!(
        map()
            .resolve(&origin("..", Some("atlas")))
            .map(|account| account.path.to_string())
            .as_deref(),
        Some("/local/atlas")
    );
}

#[test]
fn a_name_that_no_report_may_bear_means_who_is_charged_for_it() {
    let map = IdentityMap::new(vec![Rule {
        path: "/{account}/{user}".to_owned(),
        ..Rule::default()
    }]);
    let hidden = origin("ann", Some("x\u{200b}"));
    let charged = map.resolve(&hidden.clone().fitting());
    assert_eq!(map.resolve(&hidden), charged);
    assert_eq!(
        charged.expect("mapped").path.as_str(),
        "/x\u{fffd}e2\u{fffd}80\u{fffd}8b/ann"
    );
}

fn words<'a>(user: &'a str, subject: Option<&'a str>, queue: Option<&'a str>) -> Words<'a> {
    Words {
        user: Some(user),
        subject,
        queue,
        ..Words::default()
    }
}

fn person(user: Option<&str>, subject: Option<&str>, path: &str) -> Person {
    Person {
        user: user.map(Arc::from),
        subject: subject.map(Arc::from),
        account: Account {
            vo: None,
            path: AccountPath::parse(path).expect("a path"),
        },
    }
}

#[test]
fn a_person_comes_before_the_rules_and_by_the_grid_identity_first() {
    let mut people = People::default();
    for of in [
        person(Some("ann"), Some("/CN=ann"), "/p/ann"),
        person(Some("bob"), None, "/p/bob"),
        person(None, Some("/CN=eve"), "/p/eve"),
    ] {
        assert_eq!(people.insert(of), Ok(()));
    }
    let taken = people.insert(person(Some("new"), Some("/CN=eve"), "/p/new"));
    let column = "subject";
    assert_eq!(taken, Err(Taken { column, by: 2 }));
    let rule = Rule {
        path: "/r/{user}".to_owned(),
        ..Rule::default()
    };
    let map = IdentityMap::with_people(vec![rule], people);
    let path = |user, subject| {
        let account = map.resolve(words(user, subject, None)).expect("mapped");
        account.path.to_string()
    };
    assert_eq!(path("ann", None), "/p/ann");
    assert_eq!(path("pool01", Some("/CN=ann")), "/p/ann");
    assert_eq!(path("bob", Some("/CN=eve")), "/p/eve");
    assert_eq!(path("bob", Some("/CN=unknown")), "/p/bob");
    // A row that was not taken leaves nothing behind.
    assert_eq!(path("new", None), "/r/new");
    let account = |path: &str| Account {
        vo: None,
        path: AccountPath::parse(path).expect("a path"),
    };
    assert!(map.may_charge("ann", &account("/p/ann")));
    assert!(
        !map.may_charge("ann", &account("/r/ann")),
        "the map decides"
    );
    assert!(map.is_of_another("bob", &account("/p/ann")));
    assert!(!map.is_of_another("ann", &account("/p/ann")));
}

#[test]
fn a_queue_that_is_not_known_meets_no_condition_on_it() {
    let rule = |queue: Option<&str>, qos: Option<&str>, path: &str| Rule {
        queue: queue.map(Pattern::parse),
        qos: qos.map(Pattern::parse),
        path: path.to_owned(),
        ..Rule::default()
    };
    let map = IdentityMap::new(vec![
        rule(Some("gpu*"), None, "/gpu/{user}"),
        rule(None, Some("urgent"), "/urgent"),
        rule(None, None, "/{user}"),
    ]);
    let path = |words| map.resolve(words).expect("mapped").path.to_string();
    assert_eq!(path(words("ann", None, Some("gpu-long"))), "/gpu/ann");
    assert_eq!(path(words("ann", None, Some("cpu"))), "/ann");
    assert_eq!(path(words("ann", None, None)), "/ann");
    let qos = Some("urgent");
    assert_eq!(
        path(Words {
            qos,
            ..words("ann", None, None)
        }),
        "/urgent"
    );
    for (path, may) in [("/gpu/ann", true), ("/ann", true), ("/gpu/bob", false)] {
        let path = AccountPath::parse(path).expect("a path");
        assert_eq!(map.may_charge("ann", &Account { vo: None, path }), may);
    }
}

#[test]
fn a_template_with_the_user_alone_may_mix_namesakes() {
    let rule = |user: Option<&str>, subject: Option<&str>, path: &str, is_of_site| Rule {
        user: user.map(Pattern::parse),
        subject: subject.map(Pattern::parse),
        path: path.to_owned(),
        is_of_site,
        ..Rule::default()
    };
    let mut people = People::default();
    people
        .insert(person(Some("eve"), None, "/cms/eve"))
        .expect("taken");
    let rules = vec![
        rule(Some("ann"), None, "/cms/ann", false),
        rule(None, Some("/CN=dan"), "/cms/dan", false),
        rule(Some("prod*"), None, "/tokyo/{user}", true),
        rule(None, None, "/grid/{subject}", false),
        rule(None, None, "/cms/{user}", false),
        rule(None, None, "/{account}/x", false),
        Rule {
            shares_names: true,
            ..rule(None, None, "/bio/{user}", false)
        },
    ];
    let map = IdentityMap::with_people(rules, people);
    for (path, may) in [
        ("/cms/bob", true),
        ("/cms/ann", false),
        ("/cms/dan", false),
        ("/cms/eve", false),
        ("/tokyo/prod1", false),
        ("/grid/bob", false),
        ("/atlas/x", false),
        ("/bio/bob", false),
        ("/cms", false),
    ] {
        let path = AccountPath::parse(path).expect("a path");
        let account = Account { vo: None, path };
        assert_eq!(map.may_mix_namesakes(&account), may, "{account:?}");
    }
}

/// The same without an index: people, then each rule in its turn.
fn resolve_naively(map: &IdentityMap, words: Words<'_>) -> Option<Account> {
    let rows = map.people().rows().iter();
    let of = |column: fn(&Person) -> Option<&str>, word: Option<&str>| {
        let mut rows = rows.clone();
        rows.find(|row| word.is_some() && column(row) == word)
    };
    let person = of(|row| row.subject.as_deref(), words.subject)
        .or_else(|| of(|row| row.user.as_deref(), words.user));
    if let Some(person) = person {
        return Some(person.account.clone());
    }
    let mut rules = map.rules().iter().filter(|rule| rule.applies(words));
    rules.find_map(|rule| rule.account(words))
}

/// A template that has the user as a part of a name does not make a path without that part.
#[test]
fn an_account_that_another_rule_makes_for_everybody_is_nobodys_own() {
    let rule = |path: &str| Rule {
        path: path.to_owned(),
        ..Rule::default()
    };
    let map = IdentityMap::new(vec![rule("/a"), rule("/x-{user}")]);
    let account = Account {
        vo: None,
        path: AccountPath::parse("/a").expect("a path"),
    };
    assert!(!map.may_charge("ab", &account));
}

fn may_charge_naively(map: &IdentityMap, user: &str, account: &Account) -> bool {
    let by_name = words(user, None, None);
    let is_person = map
        .people()
        .rows()
        .iter()
        .any(|row| row.user.as_deref() == Some(user));
    if is_person {
        return resolve_naively(map, by_name).as_ref() == Some(account);
    }
    map.rules().iter().any(|rule| {
        let witness = rule.admits(user).then(|| rule.witness(user, account));
        let found = witness.flatten();
        found.is_some_and(|found| resolve_naively(map, found.words()).as_ref() == Some(account))
    })
}

mod properties {
    use proptest::option::of;
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 4] = ["a", "ab", "b", "abc"];
    const PATHS: [&str; 8] = [
        "/a",
        "/a/b",
        "/{user}",
        "/a/{user}",
        "/{account}/{user}",
        "/{group}/ab",
        "/x-{user}",
        "/{subject}",
    ];
    const TREE: [&str; 10] = [
        "/", "/a", "/b", "/a/b", "/a/ab", "/b/a", "/ab/ab", "/x-a", "/x-abc", "/abc/a",
    ];

    fn word() -> impl Strategy<Value = &'static str> {
        proptest::sample::select(&NAMES[..])
    }

    fn pattern() -> impl Strategy<Value = Option<Pattern>> {
        of(prop_oneof![
            4 => word().prop_map(|word| Pattern::Exact(word.to_owned())),
            1 => proptest::sample::select(&["", "a", "ab"][..])
                .prop_map(|prefix| Pattern::Prefix(prefix.to_owned())),
        ])
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let rare = || prop_oneof![3 => Just(None), 1 => pattern()];
        let path = proptest::sample::select(&PATHS[..]);
        let conditions = (
            pattern(),
            rare(),
            rare(),
            rare(),
            rare(),
            rare(),
            any::<bool>(),
        );
        (conditions, path).prop_map(
            |((user, account, group, subject, queue, qos, is_of_vo), path)| {
                let vo = is_of_vo.then(|| VoId::from_bytes([7; 32]));
                let path = path.to_owned();
                Rule {
                    user,
                    account,
                    group,
                    subject,
                    queue,
                    qos,
                    vo,
                    path,
                    ..Rule::default()
                }
            },
        )
    }

    fn map() -> impl Strategy<Value = IdentityMap> {
        let row = (of(word()), of(word()), proptest::sample::select(&TREE[..]));
        let people = proptest::collection::vec(row, 0..3);
        (proptest::collection::vec(rule(), 0..12), people).prop_map(|(rules, rows)| {
            let mut people = People::default();
            for (user, subject, path) in rows {
                // Those that are taken are left out.
                let _ = people.insert(person(user, subject, path));
            }
            IdentityMap::with_people(rules, people)
        })
    }

    proptest! {
        #[test]
        fn the_index_answers_as_a_search_through_all_rules(
            map in map(),
            found in proptest::array::uniform6(of(word())),
        ) {
            let [user, account, group, subject, queue, qos] = found;
            let words = Words { user, account, group, subject, queue, qos };
            prop_assert_eq!(map.resolve(words), resolve_naively(&map, words));
        }

        #[test]
        fn a_users_accounts_are_found_without_a_question_about_each(
            map in map(),
            user in word(),
            path in proptest::sample::select(&TREE[..]),
            is_of_vo in any::<bool>(),
        ) {
            let vo = is_of_vo.then(|| VoId::from_bytes([7; 32]));
            let path = AccountPath::parse(path).expect("a path");
            let account = Account { vo, path };
            let may = map.may_charge(user, &account);
            prop_assert_eq!(may, may_charge_naively(&map, user, &account));
            let claims = map.claims(user);
            let is_known = claims.accounts().any(|known| *known == account);
            prop_assert!(!is_known || may);
            prop_assert!(!may || is_known || claims.may_be(&account.path));
        }

        #[test]
        fn a_hidden_rule_is_found_with_the_first_that_hides_it(map in map()) {
            let rules = map.rules();
            let naive: Vec<_> = (0..rules.len())
                .filter_map(|at| Some((at, rules[..at].iter().position(|of| of.hides(&rules[at]))?)))
                .collect();
            prop_assert_eq!(map.hidden_rules(), naive);
        }
    }
}
