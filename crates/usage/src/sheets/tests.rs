use std::collections::BTreeMap;

use fairmesh_model::WallTime;
use proptest::prelude::*;

use super::*;

const RULE: Rule = Rule {
    length: WindowLength::HOUR,
    horizon: WallTime(0),
};

/// Rows of two days and three paths, hourly or daily, zero now and then.
fn any_rows() -> impl Strategy<Value = Vec<(Span, u32, u64)>> {
    let span = prop_oneof![
        4 => (0..48u32).prop_map(|window| Span::Window(Window(window))),
        1 => (0..2u32).prop_map(Span::Day),
    ];
    proptest::collection::vec((span, 0..3u32, 0..4u64), 0..40)
}

fn of(rows: &[(Span, u32, u64)]) -> Sheets {
    let mut sheets = Sheets::default();
    join_all(&mut sheets, rows);
    sheets
}

fn join_all(sheets: &mut Sheets, rows: &[(Span, u32, u64)]) -> Joining {
    let mut joining = Joining::default();
    for (span, path, charge) in rows {
        let counters = Counters {
            charge: *charge,
            jobs: 3 * u64::from(*charge == 2),
            ..Counters::default()
        };
        sheets.join_rows(
            *span,
            [(PathId(*path), counters)].into_iter(),
            RULE,
            &mut joining,
        );
    }
    joining
}

fn joined(mut a: Sheets, b: &Sheets) -> Sheets {
    for (span, sheet) in b.iter() {
        let rows: Vec<_> = sheet.rows().collect();
        a.join_rows(span, rows.into_iter(), RULE, &mut Joining::default());
    }
    a
}

fn value(sheets: &Sheets) -> BTreeMap<(Span, PathId), Counters> {
    let cells = sheets.iter().flat_map(|(span, sheet)| {
        sheet
            .rows()
            .map(move |(path, counters)| ((span, path), counters))
    });
    cells.collect()
}

proptest! {
    #[test]
    fn joining_is_a_lattice_join(a in any_rows(), b in any_rows(), c in any_rows()) {
        let (a, b, c) = (of(&a), of(&b), of(&c));
        let (ab, ba) = (joined(a.clone(), &b), joined(b.clone(), &a));
        prop_assert_eq!(value(&ab), value(&ba));
        prop_assert_eq!(value(&joined(ab.clone(), &c)), value(&joined(a.clone(), &joined(b, &c))));
        prop_assert_eq!(value(&joined(a.clone(), &a)), value(&a));
        prop_assert_eq!(value(&joined(ab.clone(), &a)), value(&ab));
    }

    #[test]
    fn the_order_of_rows_does_not_matter(rows in any_rows().prop_shuffle(), more in any_rows()) {
        let mut reversed = [rows.clone(), more.clone()].concat();
        reversed.reverse();
        prop_assert_eq!(value(&of(&reversed)), value(&of(&[rows, more].concat())));
    }

    #[test]
    fn no_account_has_hours_beside_its_day_and_no_hour_is_zero(rows in any_rows()) {
        let sheets = of(&rows);
        for ((span, path), counters) in value(&sheets) {
            if let Span::Window(window) = span {
                prop_assert!(!counters.is_zero());
                let day = sheets.sheet(Span::Day(RULE.length.day_of(window)));
                prop_assert!(!day.is_some_and(|day| day.contains(path)));
            }
        }
        prop_assert!(sheets.iter().all(|(_, sheet)| !sheet.is_empty()));
    }

    #[test]
    fn edits_add_up_to_the_cells_and_can_be_undone(before in any_rows(), rows in any_rows()) {
        let old = of(&before);
        let mut new = old.clone();
        let joining = join_all(&mut new, &rows);
        let mut followed = old.clone();
        joining.edits.iter().for_each(|edit| followed.set(edit.span, edit.path, edit.after));
        prop_assert_eq!(value(&followed), value(&new));
        joining.edits.iter().rev().for_each(|edit| new.set(edit.span, edit.path, edit.before));
        prop_assert_eq!(value(&new), value(&old));
    }

    #[test]
    fn a_difference_leads_from_one_state_to_the_other(a in any_rows(), b in any_rows()) {
        let (mut a, b) = (of(&a), of(&b));
        for edit in a.edits_to(&b) {
            a.set(edit.span, edit.path, edit.after);
        }
        prop_assert_eq!(value(&a), value(&b));
    }
}

#[test]
fn a_day_at_the_end_of_time_has_windows_without_overflow() {
    assert!(windows_of(u32::MAX, WindowLength::HOUR).is_empty());
}
