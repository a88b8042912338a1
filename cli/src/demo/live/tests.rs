//! What stands on a terminal of 80 × 24 cells while a demonstration runs.

use std::time::Duration;

use fairmesh_model::{AccountPath, ContentHash};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

fn share(path: &str, target: &str, milli: u64) -> ShareLine {
    ShareLine {
        path: AccountPath::parse(path).expect("a path"),
        target: target.to_owned(),
        actual_milli_percent: milli,
        usage_ms: 1,
    }
}

fn state(holdings: &[u8]) -> Option<NodeState> {
    Some(NodeState {
        holdings: ContentHash::of(holdings),
        oldest_ms: 0,
        known: 3,
        connected: 2,
    })
}

#[test]
fn shares_stand_beside_sites_and_what_happened_above_the_keys() {
    let shares = [
        share("/VO-A", "30", 31_400),
        share("/VO-A/P-A1", "50", 50_200),
    ];
    let states = [state(b"one"), state(b"another"), None];
    let progress = Progress {
        elapsed: Duration::from_secs(7),
        length: Duration::from_secs(60),
        jobs: 12,
        states: &states,
        shares: &shares,
        cut: true,
    };
    let news = VecDeque::from(["5 s: the mesh is cut in two.".to_owned()]);
    let foot = ["c cut or heal   q end".to_owned()];
    let scene = Scene {
        headline: "7 of 60 s",
        names: &["site-1", "site-2", "site-3"],
        progress: &progress,
        news: &news,
        foot: &foot,
        is_plain: true,
    };
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("no terminal is needed");
    terminal.draw(|frame| draw(frame, &scene)).expect("draws");
    let cells = terminal.backend().buffer().content().chunks(80);
    let text = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    };
    let lines: Vec<String> = cells.map(text).collect();
    assert_eq!(lines[0], "7 of 60 s");
    assert!(lines[2].starts_with("VO-A"), "{lines:#?}");
    assert!(lines[2].contains("31.40  #####+"), "{lines:#?}");
    assert!(lines[3].starts_with("  P-A1"), "{lines:#?}");
    assert!(lines[4].ends_with("stopped"), "{lines:#?}");
    assert!(
        lines.iter().any(|line| line.contains("the mesh is cut")),
        "{lines:#?}"
    );
    assert_eq!(lines[23], "c cut or heal   q end");
}
