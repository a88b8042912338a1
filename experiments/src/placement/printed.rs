//! What GRUBER's paper prints, for comparison of shape: it ran on a live Grid whose faults are not known.
//!
//! Source: GRUBER (Euro-Par 2005), tables 1 to 4.

use fairmesh_broker::Selector;

use super::measure::Measure;

/// Selectors of the paper, in its order.
pub const SELECTORS: [Selector; 6] = [
    Selector::Random,
    Selector::RoundRobin,
    Selector::LeastRecentlyUsed,
    Selector::LeastUsed,
    Selector::Observant,
    Selector::Naive,
];

/// One host: by measure, in the order of [`SELECTORS`].
const ONE_HOST: [[f64; 6]; 5] = [
    [97.0, 96.7, 85.6, 99.3, 97.3, 60.2],
    [1_396.0, 1_679.0, 1_440.0, 1_326.0, 284.0, 1_501.0],
    [12.85, 12.28, 10.63, 14.56, 12.59, 0.57],
    [49.07, 53.75, 54.69, 50.50, 62.01, 121.0],
    [8.19, 10.45, 22.23, 9.25, 11.2, 22.3],
];

/// Four hosts, the mean of them; OBS and S-RA are not printed.
const FOUR_HOSTS: [[f64; 4]; 5] = [
    [98.2, 98.7, 87.9, 91.7],
    [1_815.0, 1_789.0, 1_421.0, 2_409.0],
    [13.51, 14.02, 11.05, 11.52],
    [66.62, 64.41, 68.97, 63.96],
    [11.21, 10.5, 13.51, 13.49],
];

/// Ten equal runs of RA: mean and standard deviation.
const TEN_RUNS: [(f64, f64); 5] = [
    (95.11, 1.23),
    (2_000.0, 308.0),
    (18.77, 3.10),
    (78.05, 15.39),
    (7.97, 0.33),
];

/// What is printed of a selector and a number of hosts.
pub fn of(hosts: usize, selector: Selector, measure: Measure) -> Option<f64> {
    let column = SELECTORS.iter().position(|of| *of == selector)?;
    let row = row(measure);
    match hosts {
        1 => Some(ONE_HOST[row][column]),
        _ => FOUR_HOSTS[row].get(column).copied(),
    }
}

/// Mean and standard deviation of ten equal runs of RA.
pub fn ten_runs(measure: Measure) -> (f64, f64) {
    TEN_RUNS[row(measure)]
}

fn row(measure: Measure) -> usize {
    let mut all = Measure::ALL.iter();
    all.position(|(of, _)| *of == measure).expect("one of them")
}
