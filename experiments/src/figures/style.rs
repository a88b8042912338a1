//! Colours, markers, lines and texts.
//!
//! Invariant: two series that are not of one group differ in colour up to the seventh group, and any
//! two series in their marker up to the fourteenth series.
//!
//! The palette is Okabe & Ito's ("Color Universal Design", 2008), which people of all kinds of
//! colour vision tell apart; its yellow is left out, because thin lines of it vanish on white.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::element::PathElement;
use plotters::prelude::{Polygon, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    BLACK, Color as _, FontFamily, IntoFont as _, RGBAColor, RGBColor, ShapeStyle, TextStyle, WHITE,
};

use super::FigureError;

/// The whole page.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What drawing gives.
pub(super) type Drawn = Result<(), FigureError>;

/// Drawing units of a pixel. The back end has whole units only; smaller ones make smooth lines.
pub(super) const UNITS: i32 = 4;

const PALETTE: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x33, 0x33, 0x33),
];

/// Corners of the markers, in quarter pixels around the point; the eighth marker is the first one
/// hollow.
const MARKERS: [&[(i32, i32)]; 7] = [
    // A disc, near enough.
    &[
        (-6, -15),
        (6, -15),
        (15, -6),
        (15, 6),
        (6, 15),
        (-6, 15),
        (-15, 6),
        (-15, -6),
    ],
    &[(0, -18), (17, 12), (-17, 12)],
    &[(-13, -13), (13, -13), (13, 13), (-13, 13)],
    &[(0, -19), (16, 0), (0, 19), (-16, 0)],
    &[(0, 18), (17, -12), (-17, -12)],
    // A plus and a cross.
    &[
        (-5, -17),
        (5, -17),
        (5, -5),
        (17, -5),
        (17, 5),
        (5, 5),
        (5, 17),
        (-5, 17),
        (-5, 5),
        (-17, 5),
        (-17, -5),
        (-5, -5),
    ],
    &[
        (-16, -9),
        (-9, -16),
        (0, -7),
        (9, -16),
        (16, -9),
        (7, 0),
        (16, 9),
        (9, 16),
        (0, 7),
        (-9, 16),
        (-16, 9),
        (-7, 0),
    ],
];

/// A length in pixels, in drawing units.
pub(super) const fn px(pixels: i32) -> i32 {
    pixels * UNITS
}

pub(super) fn drawn<E: std::fmt::Display>(result: Result<(), E>) -> Drawn {
    result.map_err(|error| FigureError::Draw(error.to_string()))
}

pub(super) fn colour(group: usize) -> RGBColor {
    PALETTE[group % PALETTE.len()]
}

/// A stroke of so many tenths of a pixel.
pub(super) fn stroke(colour: impl Into<RGBAColor>, tenths: i32) -> ShapeStyle {
    ShapeStyle {
        color: colour.into(),
        filled: false,
        stroke_width: u32::try_from(tenths * UNITS / 10).unwrap_or(1).max(1),
    }
}

/// A text of so many pixels, by its left, centre or right end, and its middle height.
pub(super) fn text(pixels: i32, end: HPos) -> TextStyle<'static> {
    // The back end writes sizes divided by 1.24.
    (FontFamily::SansSerif, f64::from(px(pixels)) * 1.24)
        .into_font()
        .color(&BLACK.mix(0.85))
        .pos(Pos::new(end, VPos::Center))
}

/// Draws the marker of the series of this index.
pub(super) fn draw_marker(
    area: &Area<'_>,
    at: (i32, i32),
    series: usize,
    colour: RGBColor,
) -> Drawn {
    let corners = MARKERS[series % MARKERS.len()];
    let mut outline: Vec<_> = corners.iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect();
    let is_hollow = series / MARKERS.len() % 2 == 1;
    let fill = if is_hollow { WHITE } else { colour };
    drawn(area.draw(&Polygon::new(outline.clone(), fill.filled())))?;
    outline.push(outline[0]);
    drawn(area.draw(&PathElement::new(outline, stroke(colour, 10))))
}

/// Draws a level dashed line.
pub(super) fn draw_dashes(area: &Area<'_>, x: Range<i32>, y: i32, style: ShapeStyle) -> Drawn {
    const DASH: i32 = px(7);
    const PERIOD: usize = px(12) as usize;
    for begin in x.clone().step_by(PERIOD) {
        let end = (begin + DASH).min(x.end);
        drawn(area.draw(&PathElement::new(vec![(begin, y), (end, y)], style)))?;
    }
    Ok(())
}
