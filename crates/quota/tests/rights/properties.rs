//! The laws of the join, and what must hold in any Grid.

use fairmesh_quota::{Cell, Row};
use proptest::prelude::*;

use super::grid::{Faults, any_plan};
use super::{play, site};

fn any_row() -> impl Strategy<Value = Row> {
    let cell = prop_oneof![
        Just(Cell::Used),
        Just(Cell::Held),
        Just(Cell::Overdraft),
        (0..4u8).prop_map(|number| Cell::Sent(site(number))),
        (0..4u8).prop_map(|number| Cell::Taken(site(number))),
    ];
    let cells = proptest::collection::btree_map(cell, 1..u64::MAX, 0..8);
    cells.prop_map(|cells| {
        let mut row = Row::default();
        cells
            .into_iter()
            .for_each(|(cell, amount)| row.add(cell, amount));
        row
    })
}

fn joined(a: &Row, b: &Row) -> Row {
    let mut row = a.clone();
    row.join(b.clone());
    row
}

proptest! {
    #[test]
    fn rows_join_in_any_order_and_any_number_of_times(a in any_row(), b in any_row(), c in any_row()) {
        prop_assert_eq!(joined(&a, &b), joined(&b, &a));
        prop_assert_eq!(joined(&joined(&a, &b), &c), joined(&a, &joined(&b, &c)));
        prop_assert_eq!(joined(&joined(&a, &b), &b), joined(&a, &b));
    }

    #[test]
    fn rows_have_one_form(row in any_row(), at in any::<proptest::sample::Index>(), flip in 1..=255u8) {
        let mut bytes = row.to_bytes();
        prop_assert_eq!(Row::from_bytes(&bytes), Ok(row));
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(other) = Row::from_bytes(&bytes) {
            prop_assert_eq!(other.to_bytes(), bytes);
        }
    }

    /// Messages are lost, repeated and late; nodes are killed and their writes torn.
    #[test]
    fn nothing_is_spent_twice(plan in any_plan(Faults::Crashes)) {
        play::play(&plan).map_err(TestCaseError::fail)?;
    }

    /// And stores are wiped, or old ones put back.
    #[test]
    fn what_is_lost_is_not_spent_again(plan in any_plan(Faults::Losses)) {
        play::play(&plan).map_err(TestCaseError::fail)?;
    }

    /// And some members lie.
    #[test]
    fn liars_spend_what_they_held(plan in any_plan(Faults::Lies)) {
        play::play(&plan).map_err(TestCaseError::fail)?;
    }
}
