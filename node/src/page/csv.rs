//! The numbers beside the pictures, as CSV: exact ones, for programs.
//!
//! Invariant: a text that a spreadsheet would take for a formula is none here. The largest is written piece by piece,
//! as it is read, each in a turn of its own.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use fairmesh_api::words::timestamp;
use fairmesh_fairshare::{EntryId, Order};

use super::page_data::PageData;
use super::sites;
use super::usage::EntryUsage;
use crate::control::fraction;

/// Entries of one piece: some 100 kB.
const PIECE: usize = 2_000;

/// All entries below one, piece by piece.
pub(super) fn shares(
    data: &PageData,
    above: EntryId,
) -> impl Iterator<Item = String> + Send + use<> {
    let order = Arc::clone(&data.moment.order);
    let below: Vec<EntryId> = order.snapshot().subtree(above).skip(1).collect();
    let mut below = below.into_iter();
    let head = "path,target_percent,used_percent,deviation_percent,usage_core_ms,parent_usage_core_ms,rank,factor\n";
    let mut is_first = true;
    std::iter::from_fn(move || {
        let entries: Vec<EntryId> = below.by_ref().take(PIECE).collect();
        if entries.is_empty() && !is_first {
            return None;
        }
        let mut text = lines(entries.into_iter().map(|entry| share(&order, entry)));
        if std::mem::take(&mut is_first) {
            text.insert_str(0, head);
        }
        Some(text)
    })
}

fn share(order: &Order, entry: EntryId) -> Vec<String> {
    let snapshot = order.snapshot();
    let path = snapshot.path(entry).to_string();
    let Some(level) = fairmesh_fairshare::explain::levels(snapshot, entry).pop() else {
        return vec![path];
    };
    vec![
        path,
        level.target.to_string(),
        level.actual.to_string(),
        level.deviation.to_string(),
        level.usage.to_string(),
        level.parent_usage.to_string(),
        order.ranking().rank(entry).to_string(),
        fraction(order.factor(entry)),
    ]
}

/// What was used in time.
pub(super) fn history(_: &PageData, used: &EntryUsage) -> Response {
    let steps = used.steps.iter().map(|step| {
        vec![
            timestamp(step.start),
            step.own.to_string(),
            step.parent.to_string(),
        ]
    });
    whole(&["start", "used_core_ms", "parent_used_core_ms"], steps)
}

/// Where it was used.
pub(super) fn by_site(data: &PageData, used: &EntryUsage) -> Response {
    let names = sites::rows(data);
    let sites = used.by_site.iter().map(|(site, charge)| {
        let id = site.to_string();
        vec![super::entry::site_name(&names, &id), id, charge.to_string()]
    });
    whole(&["site", "id", "used_core_ms"], sites)
}

pub(super) fn sites(data: &PageData) -> Response {
    let number = |of: Option<u64>| of.map_or_else(String::new, |of| of.to_string());
    let rows = sites::rows(data).into_iter().map(|row| {
        vec![
            row.name,
            row.id,
            row.state.1.to_owned(),
            number(row.in_sync_ms),
            number(row.data_age_ms),
            number(row.usage_age_ms),
            number(row.cores.map(u64::from)),
        ]
    });
    let head = [
        "site",
        "id",
        "state",
        "in_sync_age_ms",
        "signed_age_ms",
        "usage_age_ms",
        "cores",
    ];
    whole(&head, rows)
}

/// The documents in force.
pub(super) fn documents(data: &PageData) -> Response {
    let rows = data.said.documents.iter().map(|document| {
        vec![
            document.vo.clone(),
            document.of.kind.to_string(),
            document.path(),
            document.of.version.to_string(),
            timestamp(document.of.expires),
        ]
    });
    whole(&["vo", "document", "divides", "version", "expires"], rows)
}

fn whole(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Response {
    let head = head.iter().map(|&word| word.to_owned()).collect();
    csv(Body::from(lines(std::iter::once(head).chain(rows))))
}

pub(super) fn csv(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], body).into_response()
}

fn lines(rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    for row in rows {
        let written = writer.write_record(row.iter().map(|cell| harmless(cell).into_owned()));
        written.expect("a vector takes everything, and all rows are alike");
    }
    let bytes = writer.into_inner().expect("a vector takes everything");
    String::from_utf8(bytes).expect("rows are text")
}

/// A text that no spreadsheet runs. Our own numbers are none of these, but for a minus.
fn harmless(cell: &str) -> std::borrow::Cow<'_, str> {
    let is_formula = cell.starts_with(['=', '+', '@', '-']) && cell.parse::<f64>().is_err();
    match is_formula {
        true => format!("'{cell}").into(),
        false => cell.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_formula_and_a_number_stays_one() {
        let row = ["=1+1", "-2.5", "/a,b", "@x"].map(str::to_owned).to_vec();
        assert_eq!(lines([row].into_iter()), "'=1+1,-2.5,\"/a,b\",'@x\n");
    }
}
