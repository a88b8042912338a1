//! The share tree as an icicle: a row a level, the width of an entry its target, its colour what it has used of it.
//!
//! Positions are percentages and heights are pixels, so that words keep their size on a phone and are clipped instead.
//! Invariant: at most [`ENTRIES_MAX`] entries are drawn; what is too narrow, too deep or too many is drawn as one, and
//! all of it is in the table. Every entry is a link with its figures in words.

use fairmesh_fairshare::EntryId;
use maud::{Markup, html};

use super::figures::{Balance, Figures, percent};
use super::html::entry_link;
use super::page_data::PageData;

/// Rows below the entry that is looked at.
const ROWS: usize = 4;

/// Height of a row in pixels: a finger's width.
const ROW: usize = 46;

/// Entries that are drawn at most: a page stays below 300 kB.
const ENTRIES_MAX: usize = 240;

/// The narrowest that is drawn alone, in percent: three pixels of a phone.
const WIDTH_MIN: f64 = 0.8;

/// From which width on, in percent, an entry has its name on a desk's screen, and everywhere.
const NAMED: f64 = 4.0;
const NAMED_EVERYWHERE: f64 = 20.0;

struct Cell {
    x: f64,
    width: f64,
    row: usize,
    what: What,
}

enum What {
    Entry(Figures),
    /// So many, below this one.
    Others(usize, String),
}

/// The picture of what is at and below `top`.
pub(super) fn icicle(data: &PageData, top: EntryId) -> Markup {
    let cells = layout(data, top);
    let rows = cells.iter().map(|cell| cell.row).max().unwrap_or(0) + 1;
    let name = data.moment.snapshot().path(top).to_string();
    html! {
        svg.icicle role="group" aria-label={ "Shares below " (name) } width="100%" height=(rows * ROW) {
            @for cell in &cells { (drawn(cell)) }
        }
        (legend())
    }
}

fn layout(data: &PageData, top: EntryId) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut row = vec![(0.0, 100.0, top)];
    for depth in 0..=ROWS {
        let mut next = Vec::new();
        for (x, width, entry) in std::mem::take(&mut row) {
            cells.push(Cell {
                x,
                width,
                row: depth,
                what: What::Entry(Figures::of(data, entry)),
            });
            if depth < ROWS {
                next.push((x, width, entry));
            }
        }
        for (x, width, above) in next {
            let room = ENTRIES_MAX.saturating_sub(cells.len() + row.len());
            let (drawn, others) = children(data, above, (x, width), room);
            row.extend(drawn);
            cells.extend(others.map(|(x, width, count)| Cell {
                x,
                width,
                row: depth + 1,
                what: What::Others(count, data.moment.snapshot().path(above).to_string()),
            }));
        }
    }
    cells
}

type Placed = (f64, f64, EntryId);

/// The entries right below one that are wide enough to be drawn, the widest first, and the others as one.
fn children(
    data: &PageData,
    above: EntryId,
    (mut x, width): (f64, f64),
    room: usize,
) -> (Vec<Placed>, Option<(f64, f64, usize)>) {
    let snapshot = data.moment.snapshot();
    let target = |entry| f64::from(snapshot.level(entry).target.rounded().units());
    let mut below: Vec<(f64, EntryId)> = snapshot
        .children(above)
        .map(|entry| (target(entry), entry))
        .collect();
    let whole: f64 = below.iter().map(|(target, _)| target).sum();
    below.sort_by(|(a, left), (b, right)| b.total_cmp(a).then(left.cmp(right)));
    let mut drawn = Vec::new();
    let (mut rest, mut others) = (0.0, 0);
    for (target, entry) in below {
        let of_it = if whole > 0.0 {
            width * target / whole
        } else {
            0.0
        };
        if of_it < WIDTH_MIN || drawn.len() >= room {
            rest += of_it;
            others += 1;
            continue;
        }
        drawn.push((x, of_it, entry));
        x += of_it;
    }
    (drawn, (others > 0).then_some((x, rest, others)))
}

fn drawn(cell: &Cell) -> Markup {
    let at = |value: f64| format!("{value:.3}%");
    let (class, words, link) = match &cell.what {
        What::Entry(of) => (
            of.balance.class(),
            format!("{}: {}", of.path, of.words()),
            entry_link(&of.path),
        ),
        What::Others(count, above) => (
            "others",
            match count {
                1 => format!("1 more entry below {above}: see the table"),
                _ => format!("{count} more entries below {above}: see the table"),
            },
            format!("{}#below", entry_link(above)),
        ),
    };
    let named = match cell.width {
        width if width >= NAMED_EVERYWHERE => "everywhere",
        width if width >= NAMED => "wide",
        _ => "never",
    };
    html! {
        a href=(link) {
            svg x=(at(cell.x)) y=(cell.row * ROW) width=(at(cell.width)) height=(ROW) {
                title { (words) }
                rect.(class) width="100%" height="100%" {}
                @match &cell.what {
                    What::Entry(of) => {
                        text.(named) aria-hidden="true" x="7" y="19" { (of.name) }
                        text.small.(named) aria-hidden="true" x="7" y="36" { (of.balance_short()) }
                    }
                    What::Others(count, _) => text.small.(named) aria-hidden="true" x="7" y="27" { (count) " more" }
                }
            }
        }
    }
}

impl Figures {
    /// What a box has room for.
    fn balance_short(&self) -> String {
        format!("{} of {} %", percent(self.used), percent(self.target))
    }
}

/// What the colours mean.
pub(super) fn legend() -> Markup {
    html! {
        p.legend {
            "Width: target share. Colour: used against the target. "
            @for balance in Balance::all() {
                span.key {
                    svg width="14" height="14" aria-hidden="true" { rect.(balance.class()) width="14" height="14" {} }
                    " " (balance.words())
                }
            }
        }
    }
}
