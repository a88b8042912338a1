//! Lists of `sacctmgr`, and what becomes of them: by rows, and by an oracle of Fair Tree on random trees.

mod oracle;

use std::collections::BTreeMap;

use fairmesh_node::projection::ProjectionName;

use super::rules::Rule;
use super::*;
use crate::emulate::{Charges, Jobs, ShareTree, Unknown, emulate};

/// Where a job counts by rules, as a node reads them.
fn resolve(rules: &[Rule<'_>], account: &str, user: &str, partition: Option<&str>) -> String {
    let holds = |wanted: Option<&str>, word: Option<&str>| wanted.is_none() || wanted == word;
    let rule = rules.iter().find(|rule| {
        holds(rule.user, Some(user))
            && holds(rule.account, Some(account))
            && holds(rule.partition, partition)
    });
    let path = rule.expect("a rule").path;
    let words = [("{user}", user), ("{account}", account)];
    words.iter().fold(path.to_owned(), |path, (name, word)| {
        path.replace(name, &word.replace('/', "|"))
    })
}

/// Imports a list, and hands its tree and rules on.
fn with<T>(listed: &str, then: impl FnOnce(&Tree<'_>, &[Rule<'_>]) -> T) -> T {
    let listing = assoc::parse(listed, "assoc.txt").expect("a list");
    let tree = Tree::new(&listing.associations, "assoc.txt").expect("a tree");
    then(&tree, &rules::rules(&tree.places).expect("rules"))
}

/// The weights of a list's tree by path.
fn weights(listed: &str) -> Vec<String> {
    with(listed, |tree, _| {
        let weight = |(path, weight): (&String, &tree::Weight)| match weight {
            tree::Weight::Shares(shares) => format!("{path} {shares}"),
            tree::Weight::Parent => format!("{path} parent"),
        };
        tree.entries.iter().map(weight).collect()
    })
}

/// The rules of a list, each on a line: user, account, partition, path.
fn rule_lines(listed: &str) -> Vec<String> {
    with(listed, |_, rules| {
        let word = |word: Option<&str>| word.unwrap_or("-").to_owned();
        let line = |rule: &Rule<'_>| {
            let words = [rule.user, rule.account, rule.partition, Some(rule.path)];
            words.map(word).join(" ")
        };
        rules.iter().map(line).collect()
    })
}

fn error(listed: &str) -> String {
    match import(listed, "assoc.txt") {
        Ok(_) => "none".to_owned(),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn weights_stay_and_one_pattern_is_one_rule() {
    let listed = "root|||1\nroot||root|1\nphysics|root||60\ncms|physics||70\ncms||ann|1\ncms||bob|3\n\
                  atlas|physics||30\natlas||ann|1\nchem|root||40\nchem||dan|1\n";
    let expected = [
        "/chem 40",
        "/chem/dan 1",
        "/physics 60",
        "/physics/atlas 30",
        "/physics/atlas/ann 1",
        "/physics/cms 70",
        "/physics/cms/ann 1",
        "/physics/cms/bob 3",
        "/root 1",
    ];
    assert_eq!(weights(listed), expected);
    let expected = [
        "- chem - /{account}/{user}",
        "- root - /{user}",
        "- - - /physics/{account}/{user}",
    ];
    assert_eq!(rule_lines(listed), expected);
}

#[test]
fn an_account_with_parent_vanishes_and_its_users_stay_apart() {
    let listed = "physics|root||60\nphysics||ann|4\ncms|physics||parent\ncms||ann|5\nmu|cms||parent\nmu||ann|6\n\
                  tau|mu||7\ntau||ann|8\n";
    let expected = [
        "/physics 60",
        "/physics/ann 4",
        "/physics/cms:ann 5",
        "/physics/mu:ann 6",
        "/physics/tau 7",
        "/physics/tau/ann 8",
    ];
    assert_eq!(weights(listed), expected);
    with(listed, |_, rules| {
        for (account, path) in [
            ("physics", "/physics/ann"),
            ("cms", "/physics/cms:ann"),
            ("mu", "/physics/mu:ann"),
            ("tau", "/physics/tau/ann"),
        ] {
            assert_eq!(resolve(rules, account, "ann", None), path);
        }
    });
}

#[test]
fn users_with_parent_have_one_entry_in_their_level_or_the_accounts_own() {
    let listed = "physics|root||60\nphysics||ann|parent\nphysics||bob|3\nphysics||cat|3\nchem|root||40\n\
                  chem||dan|parent\nchem||eve|parent\nops|root||parent\nops||fay|parent\n";
    let expected = [
        "/chem 40",
        "/fairshare=parent parent",
        "/physics 60",
        "/physics/bob 3",
        "/physics/cat 3",
        "/physics/fairshare=parent parent",
    ];
    assert_eq!(weights(listed), expected);
    let expected = [
        "ann physics - /physics/fairshare=parent",
        "- chem - /{account}",
        "- ops - /fairshare=parent",
        "- physics - /{account}/{user}",
    ];
    assert_eq!(rule_lines(listed), expected);
    let shares = import(listed, "assoc.txt").expect("a list").shares;
    let line = "\"/physics/fairshare=parent\" = { share = 0.0000001, since = \"9999-12-31\" }\n";
    assert!(shares.contains(line), "{shares}");
}

#[test]
fn an_association_for_a_partition_has_an_entry_of_its_own() {
    // All of `a` have one for `debug`, and one of two in `b`; eve has none but that.
    let listed = "a|root||1|\na||ann|1|\na||ann|2|debug\na||bob|3|\na||bob|4|debug\na||eve|5|debug\n\
                  b|root||1|\nb||ann|6|\nb||bob|7|\nb||bob|8|debug\nb||ann|9|gpu\n";
    let expected = [
        "bob b debug /b/bob@debug",
        "ann b gpu /b/ann@gpu",
        "- a debug /{account}/{user}@debug",
        "- - - /{account}/{user}",
    ];
    assert_eq!(rule_lines(listed), expected);
    with(listed, |tree, rules| {
        for place in &tree.places {
            let path = resolve(rules, place.account, place.user, place.partition);
            assert_eq!(path, place.path);
        }
        assert_eq!(tree.entries.len(), 2 + tree.places.len());
        assert_eq!(resolve(rules, "b", "ann", Some("debug")), "/b/ann");
        assert_eq!(resolve(rules, "b", "bob", Some("gpu")), "/b/bob");
    });
}

#[test]
fn names_that_paths_or_rules_take_otherwise_are_changed() {
    let listed = "a/b{x}|root||1\na/b{x}||ann|1\n.|root||2\n.||bob|1\ncms|root||3\nroot||cms|4\ncms||c/d|1\ncms||c d|1\n*|root||5\n";
    let expected = [
        "/(*) 5",
        "/(.) 2",
        "/(.)/bob 1",
        "/a|b(x) 1",
        "/a|b(x)/ann 1",
        "/cms 3",
        "/cms#2 4",
        "/cms/c d 1",
        "/cms/c|d 1",
    ];
    assert_eq!(weights(listed), expected);
    let expected = [
        "- . - /(.)/{user}",
        "- a/b{x} - /a|b(x)/{user}",
        "- cms - /{account}/{user}",
        "- root - /cms#2",
    ];
    assert_eq!(rule_lines(listed), expected);
}

#[test]
fn a_header_names_the_columns_and_what_has_no_counterpart() {
    let listed = "Cluster|Account|User|Par Name|MaxJobs|Share|Def QOS|ID\nhpc1|a||root|3|0|long|7\nhpc1|a|ann||3|0||8\n";
    let imported = import(listed, "assoc.txt").expect("a list");
    assert!(
        imported
            .shares
            .ends_with("[shares]\n\"/a\" = 0\n\"/a/ann\" = 0\n")
    );
    let expected = [
        "hpc1: 1 accounts and 1 associations of users: 2 entries, 1 identity rules",
        "2 entries with a share of 0 are served last: /a, /a/ann",
        "without a counterpart, so Slurm goes on enforcing them: Def QOS of 1, MaxJobs of 2 associations",
    ];
    assert_eq!(imported.report, expected);
}

#[test]
fn both_texts_together_are_one_document() {
    let listed = "a\\\"'|root||1\na\\\"'||ann|1\nb|root||1\nb||bob|1\n";
    let imported = import(listed, "assoc.txt").expect("a list");
    let text = imported.shares + &imported.identity;
    let document: toml::Table = text.parse().expect("TOML");
    assert_eq!(document["shares"]["/a\\\"'/ann"].as_integer(), Some(1));
    assert_eq!(document["identity"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (listed, words) in [
        ("", "assoc.txt: no association is listed"),
        (
            "root|||1\na|b||1\n",
            "assoc.txt:2: account b above it is not listed",
        ),
        ("a|b||1\nb|c||1\nc|a||1\n", "is above itself"),
        (
            "a|root||1\na||ann|1\na||ann|2\n",
            "assoc.txt:3: user ann in account a is in line 2 already",
        ),
        (
            "a|root||1\na|root||1\n",
            "assoc.txt:2: account a is in line 1 already",
        ),
        ("a|root||x\n", "assoc.txt:1: Fairshare is `x`"),
        ("a|root||-1\n", "assoc.txt:1: Fairshare is `-1`"),
        ("a|root||\n", "assoc.txt:1: Fairshare is ``"),
        (
            "a|root||1\na|b|root||1\n",
            "assoc.txt:2: 5 columns instead of 4",
        ),
        ("a b c\n", "assoc.txt:1: 1 columns and no header"),
        (
            "Account|User|Share\na||1\n",
            "assoc.txt:1: the column ParentName is missing",
        ),
        (
            "Account|User|ParentName\n",
            "assoc.txt:1: the column Fairshare is missing",
        ),
        (
            "Account|User|ParentName|Share\na|||1\n",
            "assoc.txt:2: account a has no parent",
        ),
        (
            "b||ann|1\n",
            "assoc.txt:1: user ann: account b is not listed",
        ),
        ("a*|root||1\na*||ann|1\n", "no rule can name `a*`"),
        (
            "Cluster|Account|User|ParentName|Share\nx|a||root|1\ny|a||root|1\n",
            "assoc.txt: associations of 2 clusters (x, y)",
        ),
    ] {
        let error = error(listed);
        assert!(error.contains(words), "{listed:?}: {error}");
    }
    let deep: String = (1..20)
        .map(|level| format!("a{level}|a{}||1\n", level - 1))
        .collect();
    let error = error(&format!("a0|root||1\n{deep}"));
    assert!(
        error.contains("assoc.txt:17: account a16: account path"),
        "{error}"
    );
}

#[test]
fn files_that_are_there_are_replaced_when_that_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = ["shares.toml", "identity.toml"].map(|name| folder.path().join(name));
    let write = |text: &str, force| {
        let text = text.to_owned();
        let files: Vec<_> = files.iter().map(|file| (file, &text)).collect();
        write_files(folder.path(), &files, force)
    };
    fs::write(&files[1], "mine").expect("writes");
    let error = write("new", false).expect_err("it is there").to_string();
    assert!(
        error.contains("identity.toml is there already: nothing was written"),
        "{error}"
    );
    assert!(!files[0].exists());
    write("new", true).expect("forced");
    let read = |at: usize| fs::read_to_string(&files[at]).expect("there");
    assert_eq!((read(0), read(1)), ("new".to_owned(), "new".to_owned()));
}

#[test]
fn what_slurm_weighs_otherwise_is_noted() {
    let cluster = Cluster::parse("PriorityFlags = ACCRUE_ALWAYS,NO_FAIR_TREE\n");
    let partitions =
        "PartitionName=main TRESBillingWeights=CPU=1.0,Mem=0.25G\nPartitionName=debug State=UP\n";
    let noted = notes(&cluster, "normal|1.000000\nlong|2.500000\n", partitions);
    assert_eq!(noted.len(), 3, "{noted:?}");
    assert!(
        noted[1].ends_with("UsageFactor of the QOS long 2.500000"),
        "{noted:?}"
    );
    assert!(
        noted[2].contains("TRESBillingWeights of main;"),
        "{noted:?}"
    );
    let usual = Cluster::parse("PriorityFlags = (null)\n");
    assert!(notes(&usual, "normal|1.000000\n", "PartitionName=a State=UP\n").is_empty());
}

#[test]
fn a_hundred_thousand_associations_take_few_rules() {
    let mut listed = "root|||1|\n".to_owned();
    for account in 0..1_000 {
        let above = if account < 10 {
            "root".to_owned()
        } else {
            format!("a{}", account / 10 - 1)
        };
        listed.push_str(&format!("a{account}|{above}||{}|\n", account % 7 + 1));
        for user in 0..50 {
            listed.push_str(&format!(
                "a{account}||u{user}|1|\na{account}||u{user}|2|debug\n"
            ));
        }
    }
    with(&listed, |tree, rules| {
        assert_eq!(tree.places.len(), 100_000);
        assert!(rules.len() <= 2_000, "{}", rules.len());
    });
}

/// Ranks of imported associations, in the order of their places, under `fairtree` with these charges.
fn ranks(listed: &str, charges: &[u64]) -> Vec<u32> {
    let shares = import(listed, "assoc.txt").expect("a list").shares;
    with(listed, |tree, rules| {
        let paths: Vec<String> = tree
            .places
            .iter()
            .map(|place| resolve(rules, place.account, place.user, place.partition))
            .collect();
        let used: String = paths
            .iter()
            .zip(charges)
            .map(|(path, charge)| format!("{path},{charge}\n"))
            .collect();
        let charges = Charges::parse(&format!("path,charge\n/,0\n{used}"), "usage.csv");
        let emulated = emulate(
            &ShareTree::parse(&shares, "shares.toml").expect("a tree"),
            &charges.expect("charges"),
            &Jobs::default(),
            fairmesh_model::Distance::Absolute,
            ProjectionName::Fairtree,
            Unknown::Refuse,
        );
        let entries = emulated.expect("numbers").entries;
        let ranks = entries
            .iter()
            .map(|entry| (entry.path.as_str(), entry.rank));
        let ranks: BTreeMap<&str, u32> = ranks.collect();
        paths.iter().map(|path| ranks[path.as_str()]).collect()
    })
}

#[test]
fn the_order_is_fair_trees_on_random_trees() {
    let compared = (0..400).filter(|seed| {
        let random = oracle::Random::new(*seed).tree();
        let ours = ranks(&random.listed, &random.charges);
        random.check(&ours, *seed)
    });
    assert!(compared.count() > 300);
}
