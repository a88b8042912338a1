//! What is drawn on 80 × 24 cells, and what keys and looks change of it.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

use super::super::model::{Key, Seen};
use super::*;

fn entry(path: &str, leaf: bool, target: &str, actual: &str, rank: u32) -> Value {
    let under = target.parse::<f64>().expect("a number") > actual.parse::<f64>().expect("a number");
    json!({
        "path": path, "leaf": leaf, "global": true, "vo": null, "target": target, "actual": actual,
        "actual_of_whole": actual, "level_fs": "0.719977", "deviation": if under { "1.5" } else { "-1.5" },
        "usage_core_ms": "1", "parent_usage_core_ms": "2", "factor": "0.5", "rank": rank,
    })
}

fn peer(name: &str, reachable: bool) -> Value {
    json!({
        "site": "ab", "name": name, "state": if reachable { "in-sync" } else { "unreachable" },
        "reachable": reachable, "data_age_ms": 65_000, "in_sync": reachable,
        "agreed_age_ms": 2_000, "addresses": [], "connections": 1, "round_trip_us": 12_345, "bytes_in": 0,
        "bytes_out": 0, "dials_failed": 0, "dial_failure": null,
    })
}

fn seen(entries: &Value, peers: &Value, notices: &Value) -> Seen {
    let node = json!({
        "site": "cd", "name": "hpc1", "version": "0.1.0", "uptime_ms": 1_000, "listening": [], "connections": 1,
        "wire_received_bytes": 0, "wire_sent_bytes": 0, "entries": 3, "records_counted": 0, "unmapped": 0,
    });
    let status =
        json!({"node": node, "vos": [], "peers": peers, "healthy": true, "notices": notices});
    Seen {
        heading: "as of 2026-11-21T03:02:59Z, 2 of 2 sites, oldest 3s ago".to_owned(),
        at_ms: 1_795_000_000_000,
        status: serde_json::from_value(status).expect("a status"),
        entries: serde_json::from_value(entries.clone()).expect("entries"),
    }
}

fn usual() -> Seen {
    let entries = json!([
        entry("/physics", false, "80", "71.43", 2),
        entry("/chem\u{1b}[2J", true, "20", "28.57", 1),
    ]);
    seen(&entries, &json!([peer("hpc2", true)]), &json!([]))
}

fn drawn(top: &Top) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("no terminal is needed");
    terminal.draw(|frame| draw(frame, top)).expect("draws");
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(80);
    lines
        .map(|cells| cells.iter().map(|cell| cell.symbol()).collect::<String>())
        .map(|line| line.trim_end().to_owned())
        .collect()
}

#[test]
fn shares_fit_eighty_columns_in_the_order_of_service() {
    let mut top = Top::new(false);
    top.take(Ok(usual()));
    let lines = drawn(&top);
    assert_eq!(
        lines[0],
        "hpc1 /  as of 2026-11-21T03:02:59Z, 2 of 2 sites, oldest 3s ago"
    );
    assert!(lines[1].contains("1 Shares") && lines[1].contains("3 Events"));
    assert!(
        lines[2].starts_with("Entry") && lines[2].ends_with("Rank"),
        "{}",
        lines[2]
    );
    // Rank 1 first, without the escape sequence that a name had.
    assert!(lines[3].starts_with("chem\u{fffd}[2J"), "{}", lines[3]);
    assert!(
        lines[3].contains("20.0 %   28.5 %   ###+##.............."),
        "{}",
        lines[3]
    );
    assert!(
        lines[4].starts_with("physics/") && lines[4].ends_with('2'),
        "{}",
        lines[4]
    );
    assert!(lines[4].contains("##############.+...."), "{}", lines[4]);
    assert!(lines[23].contains("q quit"));
}

#[test]
fn keys_lead_into_an_entry_and_out_and_to_the_sites() {
    let mut top = Top::new(true);
    top.take(Ok(usual()));
    assert!(!top.press(Key::Into), "chem has nothing below it");
    top.press(Key::Down);
    top.press(Key::Down);
    assert!(top.press(Key::Into));
    assert_eq!(top.path(), Some("/physics"));
    let below = json!([
        entry("/physics", false, "80", "71.43", 2),
        entry("/physics/cms", true, "100", "100", 2),
    ]);
    top.take(Ok(seen(&below, &json!([peer("hpc2", true)]), &json!([]))));
    let lines = drawn(&top);
    assert!(
        lines[3].starts_with("cms ") && lines[4].is_empty(),
        "{lines:?}"
    );
    assert!(top.press(Key::Out) && top.path().is_none());
    assert!(!top.press(Key::Out));
    top.press(Key::Next);
    let lines = drawn(&top);
    assert!(
        lines[3].starts_with("hpc2") && lines[3].contains("in-sync"),
        "{}",
        lines[3]
    );
    assert!(
        lines[3].contains("2s ago") && lines[3].ends_with("12 ms"),
        "{}",
        lines[3]
    );
}

#[test]
fn the_longest_state_and_ages_of_a_site_fit_eighty_columns() {
    let mut long = peer("a-site-of-16-let", true);
    let age = 59 * 60_000 + 59_000;
    for (key, value) in [
        ("state", json!("never-exchanged")),
        ("agreed_age_ms", json!(age)),
        ("data_age_ms", json!(age)),
        ("usage_age_ms", json!(age)),
        ("round_trip_us", json!(12_345_000)),
    ] {
        long[key] = value;
    }
    let mut top = Top::new(false);
    top.take(Ok(seen(&json!([]), &json!([long]), &json!([]))));
    top.press(Key::View(1));
    let lines = drawn(&top);
    assert!(lines[2].contains("Last usage  Round trip"), "{}", lines[2]);
    let ages = ["59m 59s ago"; 3].join(" ");
    let line = format!("a-site-of-16-let never-exchanged {ages} 12345 ms");
    assert!(lines[3].replace("  ", " ") == line, "{}", lines[3]);
}

#[test]
fn what_happens_is_told_once_and_what_is_wrong_stays_in_sight() {
    let mut top = Top::new(false);
    top.take(Ok(usual()));
    let lost = json!([{"code": "peer-unreachable", "severity": "warning", "text": "hpc2 is not reachable: x"}]);
    let entries = json!([entry("/physics", false, "80", "71.43", 1)]);
    for _ in 0..2 {
        top.take(Ok(seen(&entries, &json!([peer("hpc2", false)]), &lost)));
    }
    assert_eq!(top.events.len(), 2, "{:?}", top.events);
    assert!(drawn(&top)[22].contains("warning: hpc2 is not reachable: x [peer-unreachable]"));
    top.take(Ok(usual()));
    top.press(Key::View(2));
    let lines = drawn(&top);
    assert!(
        lines.iter().any(|line| line.ends_with("hpc2 is connected")),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.contains("over: hpc2 is not reachable")),
        "{lines:?}"
    );
    top.take(Err("nobody listens".to_owned()));
    assert!(drawn(&top)[0].contains("does not answer, this is of before: nobody listens"));
}

#[test]
fn a_small_terminal_is_drawn_on_as_far_as_it_goes() {
    let mut top = Top::new(false);
    top.take(Ok(usual()));
    let mut terminal = Terminal::new(TestBackend::new(20, 4)).expect("no terminal is needed");
    terminal.draw(|frame| draw(frame, &top)).expect("draws");
}

#[test]
fn without_a_terminal_it_is_lines() {
    let mut top = Top::new(true);
    top.take(Ok(usual()));
    let mut out = Vec::new();
    plain(
        &top,
        &OutputArgs {
            parsable: true,
            ..OutputArgs::default()
        },
        &mut out,
    )
    .expect("writes");
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(
        text.contains("physics/|80.0 %|71.4 %|##############.+....|0.71997|2\n"),
        "{text}"
    );
    assert!(
        text.contains("hpc2|in-sync|2s ago|1m 5s ago|-|12 ms\n"),
        "{text}"
    );
}
