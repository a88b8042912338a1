use fairmesh_model::{ContentHash, Millis, WallTime, Window};

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn view() -> View {
    View {
        as_of: WallTime(1),
        age: Millis(2),
        sites_known: 3,
        sites_total: 4,
        reference_window: Window(5),
        digest: ContentHash::of(b"view"),
        flags: 0,
        generation: 6,
        ranking: 7,
        step: 250_000_000,
    }
}

/// A job's words; an empty one is none.
fn name<'a>(user: &'a str, account: &'a str, group: &'a str) -> Names<'a> {
    let given = |word: &'a str| (!word.is_empty()).then_some(word);
    Names {
        user: given(user),
        account: given(account),
        group: given(group),
        ..Names::default()
    }
}

fn answer(table: &Table, factors: &[u32]) {
    table.store(0, factors.iter().copied(), view());
}

#[test]
fn a_name_is_noted_once_and_found_when_it_is_answered_for() {
    let table = Table::new(LONG);
    assert_eq!(
        table.look_up(&name("ann", "physics", "")),
        Ok(Found::NotYet)
    );
    assert_eq!(table.look_up(&name("ann", "", "")), Ok(Found::NotYet));
    assert_eq!(
        table.look_up(&name("ann", "physics", "")),
        Ok(Found::NotYet)
    );
    assert_eq!(table.begin_round(), (2, 0));
    table.with_names(0..2, |names| {
        let ann = Who::Names(name("ann", "", ""));
        assert_eq!(names, [Who::user_account("ann", "physics"), ann]);
    });
    answer(&table, &[7, UNKNOWN]);
    assert_eq!(
        table.look_up(&name("ann", "physics", "")),
        Ok(Found::Factor(7))
    );
    assert_eq!(table.look_up(&name("ann", "", "")), Ok(Found::NotKnown));
}

#[test]
fn names_that_the_protocol_refuses_do_not_come_in() {
    let table = Table::new(LONG);
    let long = "x".repeat(513);
    let long = long.as_str();
    for (user, account, group) in [
        ("", "a", ""),
        (long, "", ""),
        ("ann", long, ""),
        ("ann", "", long),
        ("ann", "a\0b", ""),
    ] {
        assert_eq!(
            table.look_up(&name(user, account, group)),
            Err(Refused::Name)
        );
    }
    assert_eq!(table.freshness().names, 0);
}

#[test]
fn the_revision_grows_with_changes_only() {
    let table = Table::new(LONG);
    assert_eq!(table.look_up(&name("ann", "", "")), Ok(Found::NotYet));
    let before = table.freshness();
    assert_eq!((before.revision, before.answered), (0, None));
    answer(&table, &[7]);
    answer(&table, &[7]);
    assert_eq!(table.freshness().revision, 1);
    answer(&table, &[8]);
    assert_eq!(table.wait(1, LONG), 2);
    table.wake();
    assert_eq!(table.wait(2, LONG), 2);
    // With another distance between accounts, jobs of one account have other places.
    let further = View {
        step: view().step + 1,
        ..view()
    };
    table.store(0, [8].into_iter(), further);
    assert_eq!(
        (table.freshness().revision, table.step()),
        (3, further.step)
    );
}

#[test]
fn answers_grow_old_and_a_failure_says_why() {
    let table = Table::new(Duration::ZERO);
    table.fail("nobody there".to_owned());
    assert_eq!(table.error(), "nobody there");
    assert!(!table.freshness().is_old, "it never was fresh");
    answer(&table, &[]);
    let fresh = table.freshness();
    assert!(fresh.is_old && fresh.view == Some(view()) && table.error().is_empty());
}

#[test]
fn a_full_table_forgets_who_is_not_looked_up() {
    let table = Table::new(LONG);
    for number in 0..TABLE_NAMES_MAX {
        assert_eq!(
            table.look_up(&name("ann", &number.to_string(), "")),
            Ok(Found::NotYet)
        );
    }
    assert_eq!(table.look_up(&name("bob", "", "")), Err(Refused::Full));
    for _ in 0..FORGOTTEN_AFTER_ROUNDS {
        assert_eq!(table.begin_round(), (TABLE_NAMES_MAX, 0));
        assert_eq!(table.look_up(&name("ann", "77", "")), Ok(Found::NotYet));
    }
    assert_eq!(table.begin_round(), (1, 1));
    answer(&table, &[5]);
    assert_eq!(table.look_up(&name("ann", "77", "")), Ok(Found::Factor(5)));
    assert_eq!(table.look_up(&name("bob", "", "")), Ok(Found::NotYet));
}
