//! Draws a line chart.
//!
//! Invariant: at most [`POINTS_MAX`] points of a series are drawn, and the least and the greatest
//! of each stretch are among them, so that no peak is lost.
//!
//! Deliberately not here: smoothing. What is drawn was there.

use plotters::element::PathElement;
use plotters::style::Color as _;

use super::page::{Chart, Key, Page, Symbol};
use super::style::{Area, Drawn, drawn};
use super::style::{colour, draw_dashes, draw_marker, stroke};
use super::{Figure, FigureError, Series};

/// Most points drawn of a series: more than one a pixel makes files big and shows nothing.
pub(super) const POINTS_MAX: usize = 600;

/// Markers along a line: enough to follow it, few enough to see it.
const MARKERS: i32 = 9;

pub(super) fn draw(figure: &Figure, all: &[Series]) -> Result<String, FigureError> {
    let points = || all.iter().flat_map(|series| &series.points);
    let targets = all.iter().filter_map(|series| series.target);
    let mut legend: Vec<_> = all.iter().zip(0..).map(key).collect();
    if all.iter().any(|series| series.target.is_some()) {
        legend.push(Key {
            name: "target",
            symbol: Symbol::Dashes,
        });
    }
    let values = points().map(|point| point.1).chain(targets);
    let page = Page::new(
        figure,
        extent(points().map(|point| point.0)),
        values,
        legend,
    );
    page.draw(|area, chart| {
        for series in all {
            draw_target(area, chart, series)?;
        }
        for (series, index) in all.iter().zip(0..) {
            draw_line(area, chart, series)?;
            draw_markers(area, chart, series, index, all.len())?;
        }
        Ok(())
    })
}

fn key((series, index): (&Series, usize)) -> Key<'_> {
    Key {
        name: &series.name,
        symbol: Symbol::Line {
            series: index,
            group: series.colour_group,
        },
    }
}

/// From the first x to the last, without a margin: time begins at the axis.
fn extent(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (mut least, mut greatest) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|value| value.is_finite()) {
        (least, greatest) = (least.min(value), greatest.max(value));
    }
    match greatest - least {
        length if length > 0.0 => least..greatest,
        _ if least.is_finite() => least..least + 1.0,
        _ => 0.0..1.0,
    }
}

fn draw_target(area: &Area<'_>, chart: &Chart<'_>, series: &Series) -> Drawn {
    let Some(target) = series.target else {
        return Ok(());
    };
    let y = at(chart, (0.0, target)).1;
    let x = chart.plotting_area().get_x_axis_pixel_range();
    let style = stroke(colour(series.colour_group).mix(0.75), 10);
    draw_dashes(area, x, y, style)
}

fn draw_line(area: &Area<'_>, chart: &Chart<'_>, series: &Series) -> Drawn {
    let style = stroke(colour(series.colour_group), 14);
    let thinned = thin(&series.points, POINTS_MAX);
    for stretch in thinned.split(|point| !is_number(point)) {
        let path: Vec<_> = stretch.iter().map(|point| at(chart, *point)).collect();
        if path.len() > 1 {
            drawn(area.draw(&PathElement::new(path, style)))?;
        }
    }
    Ok(())
}

/// Markers stand where a line's x passes evenly spaced places, shifted from series to series so that
/// equal lines do not hide each other's.
fn draw_markers(
    area: &Area<'_>,
    chart: &Chart<'_>,
    series: &Series,
    index: usize,
    count: usize,
) -> Drawn {
    let x = chart.plotting_area().get_x_axis_pixel_range();
    let step = ((x.end - x.start) / MARKERS).max(1);
    let mut next = x.start + step * (index as i32 + 1) / (count as i32 + 1);
    for point in series.points.iter().filter(|point| is_number(point)) {
        let at = at(chart, *point);
        if at.0 >= next {
            draw_marker(area, at, index, colour(series.colour_group))?;
            next += ((at.0 - next) / step + 1) * step;
        }
    }
    Ok(())
}

/// Where a point stands; on the edge if it lies outside.
fn at(chart: &Chart<'_>, (x, y): (f64, f64)) -> (i32, i32) {
    let y_range = chart.y_range();
    let y = y.clamp(y_range.start, y_range.end);
    chart.plotting_area().map_coordinate(&(x, y))
}

fn is_number((x, y): &(f64, f64)) -> bool {
    x.is_finite() && y.is_finite()
}

/// At most `points_max` of the points, in their order: the first, the last, and of each stretch the
/// least and the greatest. Gaps that are as long as a stretch stay gaps.
pub(super) fn thin(points: &[(f64, f64)], points_max: usize) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    if points.len() <= points_max {
        return points.to_vec();
    }
    let stretches = (points_max / 2).saturating_sub(1).max(1);
    let mut thinned = vec![*first];
    for stretch in points.chunks(points.len().div_ceil(stretches)) {
        let numbers = || {
            stretch
                .iter()
                .enumerate()
                .filter(|(_, point)| is_number(point))
        };
        let by_y = |a: &(usize, &(f64, f64)), b: &(usize, &(f64, f64))| a.1.1.total_cmp(&b.1.1);
        match (numbers().min_by(by_y), numbers().max_by(by_y)) {
            (Some(least), Some(greatest)) => {
                let mut ends = [least, greatest];
                ends.sort_by_key(|(index, _)| *index);
                thinned.extend(ends.map(|(_, point)| *point));
            }
            _ => thinned.push(stretch[0]),
        }
    }
    thinned.push(*last);
    thinned
}
