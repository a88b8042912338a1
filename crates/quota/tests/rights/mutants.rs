//! Each planted fault is found, by the rows of data or by the Grid.
//!
//! The hooks stand where the faults are (`fairmesh_model::mutant`); the table says what is wrong. A panic of the
//! code under test counts as found.

use std::collections::BTreeSet;
use std::fs;
use std::panic;
use std::path::Path;

use fairmesh_model::mutant::{plant, reached};
use proptest::test_runner::{Config, TestRunner};

use super::grid::{Faults, any_plan};
use super::{claims, passing, play, prices, worked};

/// Name, and what is wrong.
const TABLE: &[(&str, &str)] = &[
    (
        "AllClaim",
        "a job that needs more than all sites have left takes what they have",
    ),
    (
        "AloneTrusted",
        "a site that was alone for a moment after a loss does not wait for members that come",
    ),
    (
        "BandsOfAll",
        "whoever has nothing left stands among those who have",
    ),
    (
        "BandsSwapped",
        "those over their quota come before those within it",
    ),
    (
        "ChargeRoundedUp",
        "a job that runs as long as it asked to costs more than it holds",
    ),
    (
        "ClaimsUnsent",
        "a request for rights does not name the job that lacks them",
    ),
    (
        "ClaimsYield",
        "what a site expects of its own jobs comes before another site's job that waits",
    ),
    (
        "CommittedTwice",
        "a job that is reported again is charged again",
    ),
    (
        "CreditedAgain",
        "an error that is reported again is given back again",
    ),
    (
        "DeadSlicesSpent",
        "holds are taken of slices that have ended",
    ),
    (
        "ExcessUnchecked",
        "what a job costs beyond its hold is used whether it is there or not",
    ),
    (
        "DebtForgotten",
        "what is owed already does not count against the limit of the overdraft",
    ),
    (
        "ExemptCharged",
        "a job that the owner exempted is charged when it ends",
    ),
    ("FeeForgotten", "importance costs nothing"),
    (
        "FrozenCounts",
        "a site that may have lost counters counts on from what it has",
    ),
    (
        "GrantsRewritten",
        "a later version of an allocation changes what its slices grant",
    ),
    (
        "HandedOnTwice",
        "what a resized job goes on with is freed with its part that has ended, too",
    ),
    ("HeldUnchecked", "a hold takes what is not there"),
    ("HoldRoundedDown", "a job holds less than it may cost"),
    (
        "HoldUnmarked",
        "a hold is counted, and its job is not remembered",
    ),
    ("HoldsForgotten", "what is held is spendable"),
    ("HoldsNeverExpire", "holds that nobody speaks of stay"),
    (
        "HoldsStayHeld",
        "what a job held is not freed when it is charged",
    ),
    ("HoldsUnbounded", "one job may hold any amount"),
    (
        "IdleChargedAll",
        "jobs on machines that would stand idle are charged like others",
    ),
    (
        "IdleForLong",
        "jobs beyond their quota keep machines for any time",
    ),
    (
        "LeadersSetPrices",
        "a part's jobs hold and cost what its leaders say",
    ),
    ("LastSliceFirst", "the slice that ends last is spent first"),
    (
        "LateHeadsOffer",
        "what a head of an earlier incarnation has sent is taken when it comes late",
    ),
    (
        "LiarsBelieved",
        "what a site has sent is taken whether its row accounts for it or not",
    ),
    (
        "LossIgnored",
        "a site that has lost its store goes on at once",
    ),
    (
        "OlderGrantTaken",
        "an older version of an allocation replaces a newer one",
    ),
    ("OverdraftUnbounded", "the soft mode lets any job run"),
    (
        "OverdraftUncounted",
        "what is beyond the rights there are is not counted",
    ),
    (
        "OwnerOverruled",
        "the allocation's mode comes before the owner's",
    ),
    (
        "AtMostUnkept",
        "a site takes more of a slice than it may have",
    ),
    (
        "PartsGranted",
        "what leaders pass on is there beside the whole",
    ),
    (
        "PartsNotAskedFor",
        "what is asked for jobs is passed on before they have it",
    ),
    (
        "PartsOutliveWholes",
        "what was passed on is spent after the whole has ended",
    ),
    ("PassedBelieved", "whoever says that he has passed on has"),
    ("PassedKept", "what was passed on is still spendable"),
    ("PassedUnchecked", "a site passes on what it does not have"),
    (
        "PendingForgotten",
        "jobs that ended while rights were frozen are not charged",
    ),
    (
        "PriceMoves",
        "what a job that holds costs changes with the price",
    ),
    ("PriceUnbounded", "an owner asks more than the VO lets him"),
    ("PriceWithEveryLoad", "the price follows the load at once"),
    ("RemaindersTwice", "a split gives away more than there is"),
    (
        "RepeatsServed",
        "a request that is repeated is served again",
    ),
    (
        "ReplacedHoldKept",
        "a smaller hold does not give back what it no longer needs",
    ),
    (
        "ReserveGiven",
        "no machines are kept for those within their quota",
    ),
    ("RowsAddedUp", "two forms of a row are added up"),
    (
        "SendersUnasked",
        "what a site claims to have taken counts though nobody has sent it",
    ),
    ("SentKept", "what was sent is still spendable"),
    ("SentUnchecked", "a site sends what it does not have"),
    (
        "SettledForNothing",
        "an overdraft is settled and nothing is used for it",
    ),
    (
        "TakenAgain",
        "what was taken is taken again with the next head",
    ),
    (
        "TakenUnrecalled",
        "a site that has lost its store believes its own heads only",
    ),
    (
        "ThawedByOne",
        "frozen rights thaw when one member has been heard",
    ),
    (
        "UnconfirmedTaken",
        "what was sent is taken though no other member has witnessed it",
    ),
    (
        "UnseenWitnessed",
        "a site witnesses what it has not received",
    ),
    (
        "UnsoundWitnessed",
        "a site witnesses what is sent by one that does not account for it",
    ),
    (
        "WantedGiven",
        "machines that those within their quota wait for are given away",
    ),
    (
        "YoungerFirst",
        "of two jobs at two sites that need the same credit the one that asked last gets it",
    ),
];

/// Grids that are looked at for a fault, of each kind.
const GRIDS_MAX: u32 = 100;

/// What finds the fault that is planted.
fn finder() -> Option<String> {
    let fails = |check: &dyn Fn()| panic::catch_unwind(panic::AssertUnwindSafe(check)).is_err();
    let mut rows = [worked::ROWS, passing::ROWS, prices::ROWS, claims::ROWS]
        .into_iter()
        .flatten();
    let row = rows.find(|(_, check)| fails(check));
    if let Some((name, _)) = row {
        return Some((*name).to_owned());
    }
    [Faults::Crashes, Faults::Losses, Faults::Lies]
        .into_iter()
        .find_map(|faults| {
            let config = Config {
                cases: GRIDS_MAX,
                max_shrink_iters: 0,
                failure_persistence: None,
                ..Config::default()
            };
            // The same Grids every time.
            let rng = proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm);
            let mut runner = TestRunner::new_with_rng(config, rng);
            let played = runner.run(&any_plan(faults), |plan| {
                play::play(&plan).map_err(proptest::test_runner::TestCaseError::fail)
            });
            played.err().map(|_| format!("Grids with {faults:?}"))
        })
}

#[test]
fn each_planted_fault_is_found() {
    assert_eq!(finder(), None, "something is wrong without a fault");
    let mut survivors = Vec::new();
    for (name, says) in TABLE {
        let planted = plant(name);
        let found = finder();
        assert!(reached() > 0, "nothing comes by {name}");
        drop(planted);
        match found {
            Some(by) => println!("{name} ({says}): {by}"),
            None => survivors.push(*name),
        }
    }
    assert_eq!(survivors, [""; 0], "nothing finds these");
}

#[test]
fn each_fault_has_a_row_and_each_row_a_hook() {
    let mut hooked = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("it is listed").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(path).expect("it is text");
            let calls = ["mutant!(", "mutated!("]
                .into_iter()
                .flat_map(|call| text.split(call).skip(1));
            let names = calls.map(|arguments| arguments.trim_start().split([',', ')']).next());
            hooked.extend(names.flatten().map(|name| name.trim().to_owned()));
        }
    }
    let told: BTreeSet<String> = TABLE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(hooked, told);
    assert_eq!(told.len(), TABLE.len(), "a name stands for one fault");
}
