//! The figures as the paper has them: its entries, its modes, one point an hour.

use fairmesh_experiments::figures::{Chart, Figure, Groups, Series};
use fairmesh_experiments::grid::Served;
use fairmesh_experiments::paper::experiment::Experiment;
use fairmesh_experiments::paper::outcome::Outcome;
use fairmesh_experiments::paper::printed;

use crate::support::small;

fn series(figure: &Figure) -> &[Series] {
    match &figure.chart {
        Chart::Lines(series) => series,
        Chart::Bars(_) => panic!("{} has lines", figure.name),
    }
}

fn groups(figure: &Figure) -> &Groups {
    match &figure.chart {
        Chart::Bars(groups) => groups,
        Chart::Lines(_) => panic!("{} has bars", figure.name),
    }
}

#[test]
fn every_figure_has_the_papers_entries_in_the_modes_that_it_names() {
    let mut experiments = Experiment::printed();
    experiments.retain(|experiment| experiment.served == Served::Exact);
    let outcome = Outcome::of(&experiments, small(3), &[1], 2, &()).expect("a valid load");
    let figures = printed::figures(&outcome);
    let named = |figure: &Figure| {
        let lines = series(figure).iter().map(|line| line.name.as_str());
        let lines: Vec<&str> = lines.collect();
        format!("{} {}", figure.name, lines.join(" "))
    };
    let (users, projects) = ("U-B11 U-B12 U-B13", "P-A1 P-A2 P-A3");
    let mut expected = vec![
        "printed-05-historical VO-A VO-B".to_owned(),
        format!("printed-06-historical {projects}"),
        "printed-07-historical P-B1 P-B2".to_owned(),
        format!("printed-08-historical {users}"),
        format!("printed-09-active {users}"),
        format!("printed-10-predictive {users}"),
    ];
    let open = [
        (11, projects),
        (12, projects),
        (13, users),
        (14, "P-B1 P-B2"),
    ];
    for (number, entries) in open {
        let modes = ["historical", "active", "predictive"];
        expected.extend(modes.map(|mode| format!("printed-{number}-{mode} {entries}")));
    }
    let drawn: Vec<String> = figures.iter().map(named).collect();
    assert_eq!(drawn, expected);
    for figure in &figures {
        assert_eq!(series(figure)[0].points.len(), 4, "{}", figure.name);
        let shares = series(figure).iter().map(|line| line.points[3].1);
        assert!(
            (shares.sum::<f64>() - 100.0).abs() < 1e-6,
            "{}",
            figure.name
        );
    }
    // What schedulers are given is compared at the end of the same lines.
    let comparisons = printed::comparisons(&outcome);
    let ends = comparisons
        .iter()
        .filter(|of| of.name != "printed-served-vos");
    let ends: Vec<_> = ends
        .filter(|of| of.name != "printed-served-below")
        .collect();
    assert_eq!(ends.len(), 4);
    for (comparison, lines) in ends.iter().zip(figures[6..].chunks(3)) {
        let lines = lines.iter().flat_map(series);
        let groups = groups(comparison);
        let shown = groups.bars[0].spreads.iter().zip(&groups.names);
        assert_eq!(lines.clone().count(), shown.len(), "{}", comparison.name);
        for ((spread, group), line) in shown.zip(lines) {
            assert!(group.starts_with(&line.name), "{group}");
            let end = spread.expect("a run").mean;
            assert!((end - line.points[3].1).abs() < 1e-6, "{group}: {end}");
        }
        assert!(groups.bars[1].spreads.iter().all(Option::is_none));
    }
}
