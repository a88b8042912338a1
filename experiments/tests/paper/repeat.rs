//! The same seeds give the same bytes, whatever the number of threads.

use fairmesh_experiments::paper::experiment::{Case, Experiment, Knowledge};
use fairmesh_experiments::paper::outcome::{Outcome, summary};
use fairmesh_experiments::paper::{chart, text};
use fairmesh_model::UsageMode;

use crate::support::{small, steady};

fn bytes_of(threads: usize) -> Vec<String> {
    let knowledge = [Knowledge::Gossip(60), Knowledge::Central];
    let mut experiments = knowledge
        .map(|of| steady(UsageMode::Predictive, of))
        .to_vec();
    let alone = Knowledge::OwnSite(60);
    experiments.push(Experiment::new(Case::Half, UsageMode::Predictive, alone));
    let outcome = Outcome::of(&experiments, small(6), &[1, 2], threads, &());
    let outcome = outcome.expect("a valid load");
    let mut files = vec![text::csv(&summary(&outcome.measures())).expect("a table")];
    for number in chart::NUMBERS {
        for figure in chart::figures(&outcome, number) {
            files.push(figure.to_csv().expect("a table"));
            files.push(figure.to_svg().expect("a picture"));
        }
    }
    let comparison = chart::comparison(&outcome).expect("it has runs");
    files.push(comparison.to_svg().expect("a picture"));
    files
}

#[test]
fn figures_are_the_same_bytes_each_time() {
    let files = bytes_of(1);
    // Figures 9, 11 and the twins of 9 and 10, each twice; figure 14; the summary.
    assert_eq!(files.len(), 10);
    assert!(files == bytes_of(2), "two runs of the same seeds differ");
}
