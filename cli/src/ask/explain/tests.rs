//! What `fairmesh explain` prints, and whom its arguments mean.

use clap::Parser as _;
use fairmesh_api::{CauseBody, CauseOfSite, ComparisonBody, CountersBody, LevelBody};
use fairmesh_node::words::explanation::{level_words, place_sentence, reason, write};

use super::*;

fn level(path: &str, target: &str, actual: &str, deviation: &str) -> LevelBody {
    LevelBody {
        path: path.to_owned(),
        global: true,
        distance: "absolute".to_owned(),
        by_policy_of: None,
        target: target.to_owned(),
        actual: actual.to_owned(),
        at_most: None,
        over: false,
        last: false,
        among: None,
        since: None,
        deviation: deviation.to_owned(),
        usage_core_ms: "0".to_owned(),
        parent_usage_core_ms: "0".to_owned(),
    }
}

fn body(account: &str, levels: Vec<LevelBody>) -> ExplainBody {
    let path = levels[levels.len() - 1].path.clone();
    ExplainBody {
        exact: account == path,
        account: account.to_owned(),
        path,
        rank: 2,
        ranks: 5,
        projection: "rank".to_owned(),
        levels,
        comparison: None,
        causes: Vec::new(),
        others: Vec::new(),
    }
}

fn why(levels: Vec<LevelBody>, whose: Whose<'_>) -> String {
    reason(&body("/", levels), whose)
}

#[test]
fn a_projection_of_products_is_explained_by_its_rank() {
    let mut body = body("/cms", vec![level("/cms", "40", "10", "30")]);
    body.projection = "percental".to_owned();
    assert_eq!(
        reason(&body, Whose::Of("ann")),
        "The projection `percental` compares what all levels together promise and have: rank 2 of 5."
    );
}

#[test]
fn a_level_over_its_limit_is_reported() {
    let limited = |over| LevelBody {
        at_most: Some("45".to_owned()),
        over,
        ..level("/cms/ann", "30", "50", "-20.0000000")
    };
    let over = level_words(&limited(true));
    assert!(
        over.ends_with(": over its limit of 45 %, so all others here that have a share go first")
    );
    assert!(level_words(&limited(false)).ends_with("above its target, so it waits"));
    assert_eq!(
        why(vec![limited(true)], Whose::Yours("ann")),
        "You have used 50.00 % of /cms, limited to 45 %: your jobs are served after all others of /cms that have a share."
    );
}

#[test]
fn a_share_of_zero_a_period_and_an_account_without_a_line_are_explained() {
    let zero = LevelBody {
        last: true,
        ..level("/scavenger", "0", "0", "0")
    };
    assert_eq!(
        level_words(&zero),
        "/scavenger: should have 0 % of this site, has 0.00 % on all sites (0.00 of 0.00 core-hours): its share is 0, so \
         all others here that have one go first"
    );
    assert_eq!(
        why(vec![zero], Whose::Nobody),
        "/scavenger has used 0.00 % of this site, promised 0 %: jobs of /scavenger are served after all others of this \
         site that have a share."
    );
    let dated = LevelBody {
        since: Some("2026-07-01".to_owned()),
        ..level("/cms", "40", "10", "30")
    };
    assert!(level_words(&dated).contains("has 10.00 % on all sites since 2026-07-01 ("));
    let dan = LevelBody {
        among: Some("/cms/*".to_owned()),
        ..level("/cms/dan", "0", "30", "-30")
    };
    assert_eq!(
        level_words(&dan),
        "/cms/dan: has no line, has 30.00 % on all sites (0.00 of 0.00 core-hours) of /cms/*: the account that has used \
         less goes first"
    );
    assert_eq!(
        why(vec![dan], Whose::Of("dan")),
        "dan has used 30.00 % of /cms/*: jobs of dan are served after those of /cms/* that have used less."
    );
}

#[test]
fn what_a_group_has_used_is_said_of_the_group() {
    let cms = || level("/cms", "40", "41.4", "-1.4");
    let ann = || level("/cms/ann", "50", "10", "40");
    for (levels, whose, expected) in [
        // A pilot account, or somebody without an entry: the VO's entry is nobody's own.
        (
            vec![cms()],
            Whose::Of("ann"),
            "/cms has used 41.40 % of this site, promised 40 %: jobs of ann are served after others of this site.",
        ),
        (
            vec![cms()],
            Whose::Yours("ann"),
            "/cms has used 41.40 % of this site, promised 40 %: your jobs are served after others of this site.",
        ),
        // The VO decides before the user does.
        (
            vec![cms(), ann()],
            Whose::Of("ann"),
            "/cms decides first: it has used 41.40 % of this site, promised 40 %, so jobs of ann are served after \
             others of this site, whatever each of its users has used.",
        ),
        // The user's own entry, and one that another site gave another name.
        (
            vec![level("/cms", "40", "40", "0"), ann()],
            Whose::Of("ann"),
            "ann has used 10.00 % of /cms, promised 50 %: jobs of ann are served before others of /cms.",
        ),
        (
            vec![level("/cms", "40", "40", "0"), ann()],
            Whose::Of("u1001"),
            "/cms/ann has used 10.00 % of /cms, promised 50 %: jobs of u1001 are served before others of /cms.",
        ),
        (
            vec![level("/cms", "40", "40", "0")],
            Whose::Of("ann"),
            "All of it is on target.",
        ),
    ] {
        assert_eq!(why(levels, whose), expected);
    }
}

#[test]
fn a_user_without_an_entry_is_told_so_first() {
    let cms = || vec![level("/cms", "40", "41.4", "-1.4")];
    let of = |account, whose| place_sentence(&body(account, cms()), whose);
    assert_eq!(
        of("/cms/ann", Whose::Of("ann")),
        "ann has no line of their own in the share tree: their jobs count at /cms (/cms/ann has none), together with \
         those of everybody there without a line, rank 2 of 5."
    );
    assert!(of("/cms/ann", Whose::Yours("ann")).starts_with("You have no line of your own"));
    assert_eq!(
        of("/cms", Whose::Of("pilot")),
        "Jobs of pilot count at /cms, rank 2 of 5."
    );
}

#[test]
fn a_new_account_is_compared_with_one_of_those_without_a_line() {
    let mut body = body("/cms/zoe", vec![level("/cms/*", "10", "20", "-10")]);
    body.comparison = Some(ComparisonBody {
        versus: "/cms/dan".to_owned(),
        versus_levels: vec![
            level("/cms/*", "10", "20", "-10"),
            LevelBody {
                among: Some("/cms/*".to_owned()),
                ..level("/cms/dan", "0", "50", "-50")
            },
        ],
        common_ancestor: "/cms/*".to_owned(),
        standing: "before".to_owned(),
        level: Some(1),
        deviation: Some("0".to_owned()),
        versus_deviation: Some("-50".to_owned()),
        parity_core_ms: Some("7200000".to_owned()),
    });
    let mut out = Vec::new();
    write(&body, Whose::Nobody, &mut out).expect("a vector takes everything");
    let words = String::from_utf8(out).expect("text");
    let expected = "Against /cms/dan: both lie below /cms/*.\n\
                    a new account of /cms/* is served first. It is decided at level 2:\n  \
                    /cms/dan: 50.00 % of /cms/*\n\
                    For parity, a new account of /cms/* would have to use 2.00 core-hours more, while /cms/dan uses none.\n";
    assert!(words.ends_with(expected), "{words}");
}

#[test]
fn sites_are_shown_by_what_counts_and_by_what_they_published() {
    let site = |name: &str, weighted: &str, raw: &str| CauseOfSite {
        id: "ab".repeat(32),
        name: Some(name.to_owned()),
        weighted_core_ms: weighted.to_owned(),
        counters: CountersBody {
            charge_core_ms: raw.to_owned(),
            ..CountersBody::default()
        },
    };
    let mut body = body("/cms", vec![level("/cms", "40", "41.4", "-1.4")]);
    body.causes.push(CauseBody {
        path: "/cms".to_owned(),
        usage_core_ms: "7200000".to_owned(),
        sites: vec![
            site("tokyo", "5400000", "43200000"),
            site("small", "1800000", "1800000"),
        ],
    });
    let mut out = Vec::new();
    write(&body, Whose::Nobody, &mut out).expect("a vector takes everything");
    let words = String::from_utf8(out).expect("text");
    let expected = "The 2.00 core-hours of /cms by site, weighted and clamped as in this sum; raw: as the site published \
                    it, unweighted:\n  tokyo: 1.50 core-hours (75.0 %); raw 12.00\n  small: 0.50 core-hours (25.0 %); raw 0.50\n";
    assert!(words.ends_with(expected), "{words}");
}

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    explain: ExplainArgs,
}

fn meant(line: &str) -> (Origin, Origin) {
    let words = std::iter::once("explain").chain(line.split_whitespace());
    persons(&Line::try_parse_from(words).expect("a line").explain)
}

#[test]
fn people_are_named_by_user_account_group_and_subject() {
    let word = |word: &str| Some(word.to_owned());
    let (who, versus) = meant("--subject /DC=ch/CN=ann --vs-subject /DC=ch/CN=bob");
    assert_eq!(
        (who.user.as_ref(), who.subject.clone()),
        (None, word("/DC=ch/CN=ann"))
    );
    assert_eq!(label(&who), word("/DC=ch/CN=ann"));
    assert_eq!(versus.subject, word("/DC=ch/CN=bob"));
    let (who, _) = meant("-g cms");
    assert_eq!((who.user.as_ref(), who.group.clone()), (None, word("cms")));
    assert_eq!(label(&who), word("the group cms"));
    let (who, versus) = meant("ann -A cms --vs bob --vs-account atlas --vs-group g");
    assert_eq!((who.user, who.account), (word("ann"), word("cms")));
    assert_eq!(
        (versus.user, versus.account, versus.group),
        (word("bob"), word("atlas"), word("g"))
    );
    // Whoever asks, with one of their accounts.
    assert_eq!(meant("-A cms").0.user, me());
    assert!(me().is_some());
}

#[test]
fn what_begins_with_a_digit_is_a_job() {
    for job in ["12", "12_5", "12_[3-9%2]", "12+1"] {
        assert!(is_job_id(job), "{job}");
    }
    for user in ["ann", "/cms/1", "u12", "12ab", ""] {
        assert!(!is_job_id(user), "{user}");
    }
}
