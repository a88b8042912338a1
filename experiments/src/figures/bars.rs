//! Draws grouped bars, each with a whisker from the least to the greatest.
//!
//! Invariant: the bars of a group stand side by side in the legend's order, and a whisker's ends
//! are drawn on the edge where they lie outside.
//!
//! Deliberately not here: means and spreads of anything; [`Spread::of`] makes them.

use plotters::element::{PathElement, Rectangle};
use plotters::style::text_anchor::HPos;
use plotters::style::{BLACK, Color as _};

use super::page::{Chart, Key, NAME_ROW, Page, Symbol, wrap, write};
use super::style::{Area, Drawn, drawn};
use super::style::{colour, draw_dashes, px, stroke};
use super::{Figure, FigureError, Groups, Spread};

/// Pixels of the names below the groups.
const NAME_PX: i32 = 12;

/// Lines of a group's name.
const NAME_LINES_MAX: usize = 5;

pub(super) fn draw(figure: &Figure, of: &Groups) -> Result<String, FigureError> {
    let spreads = of
        .bars
        .iter()
        .flat_map(|bars| bars.spreads.iter().flatten());
    let values = spreads.flat_map(|spread| [0.0, spread.mean, spread.min, spread.max]);
    let key = |(name, group)| Key {
        name,
        symbol: Symbol::Box { group },
    };
    let names = of.bars.iter().map(|bars| bars.name.as_str());
    let mut legend: Vec<_> = names.zip(0..).map(key).collect();
    if of.reference.is_some() {
        legend.push(Key {
            name: "reference",
            symbol: Symbol::Dashes,
        });
    }
    let x_range = 0.0..of.names.len().max(1) as f64;
    let mut page = Page::new(figure, x_range, values.chain(of.reference), legend);
    let groups = of.names.len().max(1) as i32;
    let chars = usize::try_from(page.chart_width() / groups / 7).unwrap_or(0);
    let wrapped = |name: &String| wrap(name, chars.max(4), NAME_LINES_MAX);
    let names: Vec<_> = of.names.iter().map(wrapped).collect();
    page.name_lines = Some(names.iter().map(Vec::len).max().unwrap_or(1).max(1) as i32);
    page.draw(|area, chart| {
        draw_names(area, chart, &names)?;
        for (bars, index) in of.bars.iter().zip(0..) {
            for (spread, group) in bars.spreads.iter().take(of.names.len()).zip(0..) {
                if let Some(spread) = spread {
                    let place = place(group, index, of.bars.len());
                    draw_bar(area, chart, spread, place, index)?;
                }
            }
        }
        of.reference
            .map_or(Ok(()), |reference| draw_reference(area, chart, reference))
    })
}

/// The left and the right end of a bar: a group is one wide, and a fifth of it is empty.
fn place(group: usize, bar: usize, bars: usize) -> (f64, f64) {
    let width = 0.8 / bars as f64;
    let left = group as f64 + 0.1 + width * bar as f64;
    (left + width * 0.06, left + width * 0.94)
}

fn draw_bar(
    area: &Area<'_>,
    chart: &Chart<'_>,
    spread: &Spread,
    (left, right): (f64, f64),
    index: usize,
) -> Drawn {
    let corners = [at(chart, left, spread.mean), at(chart, right, 0.0)];
    let fill = colour(index).mix(0.8).filled();
    drawn(area.draw(&Rectangle::new(corners, fill)))?;
    let (middle, least) = at(chart, f64::midpoint(left, right), spread.min);
    let greatest = at(chart, left, spread.max).1;
    let cap = px(4).min((corners[1].0 - corners[0].0) / 3);
    for whisker in [
        [(middle, least), (middle, greatest)],
        [(middle - cap, least), (middle + cap, least)],
        [(middle - cap, greatest), (middle + cap, greatest)],
    ] {
        let line = PathElement::new(whisker.to_vec(), stroke(BLACK.mix(0.85), 12));
        drawn(area.draw(&line))?;
    }
    Ok(())
}

fn draw_names(area: &Area<'_>, chart: &Chart<'_>, names: &[Vec<String>]) -> Drawn {
    let (x, y) = chart.plotting_area().get_pixel_range();
    let width = (x.end - x.start) / names.len().max(1) as i32;
    for (lines, group) in names.iter().zip(0..) {
        for (line, row) in lines.iter().zip(0..) {
            let at = (
                x.start + width * group + width / 2,
                y.end + px(12) + px(NAME_ROW) * row,
            );
            write(area, line, at, NAME_PX, HPos::Center)?;
        }
    }
    Ok(())
}

fn draw_reference(area: &Area<'_>, chart: &Chart<'_>, reference: f64) -> Drawn {
    let x = chart.plotting_area().get_x_axis_pixel_range();
    let y = at(chart, 0.0, reference).1;
    draw_dashes(area, x, y, stroke(BLACK.mix(0.7), 12))
}

fn at(chart: &Chart<'_>, x: f64, y: f64) -> (i32, i32) {
    let range = chart.y_range();
    let y = y.clamp(range.start, range.end);
    chart.plotting_area().map_coordinate(&(x, y))
}
