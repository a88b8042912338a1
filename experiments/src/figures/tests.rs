use super::lines::{POINTS_MAX, thin};
use super::page::wrap;
use super::*;

const CAPTION: &str = "Figure 5. Global shares of the policy's entries under FSGrid. Two VOs & six \
sites of 100 CPUs each; every leaf submits a job of one hour (± 40 %) every 15 seconds; usage decays \
by half each day. Shares settle on their targets <within> two simulated days.";

/// Seven lines that settle on the targets of the paper's leaves.
fn figure() -> Figure {
    let leaves = [
        ("P-A1", 15.0),
        ("P-A2", 9.0),
        ("P-A3", 6.0),
        ("U-B11", 21.0),
        ("U-B12", 12.6),
        ("U-B13", 8.4),
        ("P-B2", 28.0),
    ];
    let point = |target: f64, step: i32| {
        let day = f64::from(step) / 100.0;
        let wave = (day * 17.0 + target).sin() * 0.4;
        (
            day,
            target + (14.3 - target + wave) / (1.0 + day * day * 4.0) + wave * 0.5,
        )
    };
    let series = leaves
        .iter()
        .zip(0..)
        .map(|((name, target), group)| Series {
            name: (*name).to_owned(),
            points: (0..=1_000).map(|step| point(*target, step)).collect(),
            target: Some(*target),
            colour_group: group,
        });
    Figure {
        name: "figure-05".to_owned(),
        title: "Figure 5: shares converge to their targets".to_owned(),
        caption: CAPTION.to_owned(),
        x_label: "simulated time (days)".to_owned(),
        y_label: "share of the Grid (percent)".to_owned(),
        y_range: None,
        chart: Chart::Lines(series.collect()),
    }
}

fn summary() -> Figure {
    let bars = |name: &str, means: [f64; 3]| Bars {
        name: name.to_owned(),
        spreads: means
            .iter()
            .map(|mean| Spread::of(&[mean * 0.8, *mean, mean * 1.3]))
            .collect(),
    };
    Figure {
        name: "fairness-error".to_owned(),
        title: "Fairness error against an all-knowing scheduler".to_owned(),
        caption: CAPTION.to_owned(),
        x_label: "fault".to_owned(),
        y_label: "error (ratio)".to_owned(),
        y_range: None,
        chart: Chart::Bars(Groups {
            names: ["none", "10 % of messages lost", "islands for a day"]
                .map(str::to_owned)
                .into(),
            bars: vec![
                bars("gossip", [1.01, 1.03, 1.4]),
                bars("central", [1.0, 1.0, 1.0]),
                bars("no exchange", [2.5, 2.5, 2.5]),
            ],
            reference: Some(1.0),
        }),
    }
}

fn unescape(text: &str) -> String {
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&apos;", "'"),
        ("&quot;", "\""),
        ("&amp;", "&"),
    ];
    entities
        .iter()
        .fold(text.to_owned(), |text, (entity, character)| {
            text.replace(entity, character)
        })
}

/// The texts of an SVG, after a check that its tags are balanced and its attributes quoted.
fn texts(svg: &str) -> Vec<String> {
    let (mut open, mut texts) = (Vec::new(), Vec::new());
    for part in svg.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("a tag ends");
        let name = tag.split([' ', '/']).find(|word| !word.is_empty());
        let name = name.expect("a tag has a name");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "tags close in order");
        } else if !tag.ends_with('/') {
            open.push(name);
            texts.push(unescape(text.trim()));
        } else {
            assert_eq!(text.trim(), "", "text stands in text tags only");
        }
    }
    assert!(open.is_empty(), "{open:?} stay open");
    texts.retain(|text| !text.is_empty());
    texts
}

#[test]
fn a_figure_is_written_as_a_table_and_as_a_picture() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let [csv, svg] = figure().write(dir.path()).expect("written");
    assert!(csv.ends_with("figure-05.csv") && svg.ends_with("figure-05.svg"));
    let csv = std::fs::read_to_string(csv).expect("a file");
    let mut rows = csv.lines();
    assert_eq!(rows.next(), Some("series,x,y,target"));
    assert_eq!(rows.clone().count(), 7 * 1_001, "the table is not thinned");
    assert!(rows.any(|row| row.starts_with("U-B12,0.010000,") && row.ends_with(",12.600000")));
    let svg = std::fs::read_to_string(svg).expect("a file");
    assert!(svg.starts_with("<svg width=\"900\" height=\"540\""));
    let texts = texts(&svg);
    let has = |text: &str| texts.iter().any(|found| found == text);
    let figure = figure();
    assert!(has(&figure.title) && has(&figure.x_label) && has(&figure.y_label));
    let Chart::Lines(series) = &figure.chart else {
        panic!("these are lines");
    };
    assert!(series.iter().all(|series| has(&series.name)) && has("target"));
    assert!(has(CAPTION), "the description has the whole caption");
    let written = texts.join(" ").matches(CAPTION).count();
    assert_eq!(written, 2, "and so have the lines below the chart");
}

#[test]
fn a_summary_is_written_as_a_table_and_as_a_picture() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let [csv, svg] = summary().write(dir.path()).expect("written");
    let csv = std::fs::read_to_string(csv).expect("a file");
    assert!(
        csv.contains("\ngossip,islands for a day,1.446667,1.120000,1.820000\n"),
        "{csv}"
    );
    let texts = texts(&std::fs::read_to_string(svg).expect("a file"));
    for text in [
        "gossip",
        "central",
        "no exchange",
        "reference",
        "none",
        "islands for a day",
    ] {
        assert!(texts.iter().any(|found| found == text), "{text}");
    }
}

#[test]
fn equal_figures_give_equal_files() {
    let (first, second) = (figure(), figure());
    assert_eq!(
        first.to_csv().expect("a table"),
        second.to_csv().expect("a table")
    );
    assert_eq!(
        first.to_svg().expect("a picture"),
        second.to_svg().expect("a picture")
    );
}

#[test]
fn odd_figures_are_drawn_too() {
    let point = |points: Vec<(f64, f64)>| Figure {
        chart: Chart::Lines(vec![Series {
            name: "a name that is much too long for any legend".to_owned(),
            points,
            target: Some(1e9),
            colour_group: 99,
        }]),
        y_range: Some((0.0, 1.0)),
        caption: "word ".repeat(1_000),
        ..figure()
    };
    let figures = [
        Figure::default(),
        point(vec![]),
        point(vec![(1.0, 1.0)]),
        point(vec![
            (0.0, f64::NAN),
            (1.0, -7.0),
            (2.0, f64::INFINITY),
            (3.0, 2.0),
        ]),
    ];
    for figure in figures {
        texts(&figure.to_svg().expect("a picture"));
        assert!(!figure.to_csv().expect("a table").contains("NaN"));
    }
    let without = |bars: Vec<Bars>| Figure {
        chart: Chart::Bars(Groups {
            bars,
            ..Groups::default()
        }),
        ..Figure::default()
    };
    texts(&without(Vec::new()).to_svg().expect("a picture"));
    let mut empty = summary();
    let Chart::Bars(groups) = &mut empty.chart else {
        panic!("these are bars");
    };
    groups.bars = vec![Bars {
        name: "none".to_owned(),
        spreads: vec![None; 9],
    }];
    texts(&empty.to_svg().expect("a picture"));
}

#[test]
fn names_that_are_no_file_names_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for name in ["", "../up", "Figure", "a b", &"x".repeat(101)] {
        let figure = Figure {
            name: name.to_owned(),
            ..figure()
        };
        let refused = figure.write(dir.path());
        assert!(matches!(refused, Err(FigureError::Name(_))), "{name:?}");
    }
    let nowhere = figure().write(&dir.path().join("nowhere"));
    assert!(matches!(nowhere, Err(FigureError::File { .. })));
    assert_eq!(
        std::fs::read_dir(dir.path()).expect("a directory").count(),
        0
    );
}

#[test]
fn thinning_keeps_the_ends_and_the_peaks() {
    let mut points: Vec<(f64, f64)> = (0..50_000).map(|x| (f64::from(x), 5.0)).collect();
    points[31_234].1 = 99.0;
    points[4_321].1 = -3.0;
    let thinned = thin(&points, POINTS_MAX);
    assert!(thinned.len() <= POINTS_MAX, "{}", thinned.len());
    assert!(thinned.is_sorted_by(|a, b| a.0 <= b.0));
    assert_eq!(
        (thinned[0], thinned[thinned.len() - 1]),
        (points[0], points[49_999])
    );
    assert!(thinned.contains(&points[31_234]) && thinned.contains(&points[4_321]));
    let few = &points[..POINTS_MAX];
    assert_eq!(thin(few, POINTS_MAX), few);
}

#[test]
fn texts_are_broken_between_words() {
    assert_eq!(wrap("one two  three", 7, 9), ["one two", "three"]);
    assert_eq!(wrap("one two three", 7, 1), ["one tw…"]);
    assert_eq!(wrap("unbreakable", 6, 2), ["unbre…"]);
    assert!(wrap("", 7, 9).is_empty());
}

#[test]
fn a_spread_is_of_the_numbers_alone() {
    let spread = Spread::of(&[1.0, f64::NAN, 3.0]);
    let expected = Spread {
        mean: 2.0,
        min: 1.0,
        max: 3.0,
    };
    assert_eq!(spread, Some(expected));
    assert_eq!(Spread::of(&[f64::NAN]), None);
}
