//! The page of a figure: title above, legend at the right, caption below, and what is left for the
//! chart, with its axes.
//!
//! Invariant: nothing is drawn over anything else's place, whatever the texts' lengths: a legend
//! entry that is too long is cut, a legend that is too high moves together, and a caption is wrapped
//! and pushes the chart up.
//!
//! Widths of texts are estimated generously (no font is measured, see the parent module), so that
//! they fit in a wide font such as DejaVu Sans, and look airy in a narrow one.
//!
//! Deliberately not here: what is drawn into the chart.

use std::ops::Range;

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::IntoDrawingArea as _;
use plotters::element::{PathElement, Text};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::HPos;
use plotters::style::{BLACK, Color as _, WHITE};

use super::style::{Area, Drawn, colour, draw_dashes, draw_marker, drawn, px, stroke, text};
use super::{Figure, FigureError};

/// Width of a figure in pixels.
const WIDTH: i32 = 900;

/// Height of a figure in pixels.
const HEIGHT: i32 = 540;

const MARGIN: i32 = 18;
const TITLE: i32 = 44;
const TITLE_PX: i32 = 16;
const LEGEND_ROW: i32 = 21;
const LEGEND_KEY: i32 = 40;
const LABEL_PX: i32 = 12;
/// Left of the y axis, and right of the chart.
const Y_LABELS: i32 = 60;
const CHART_RIGHT: i32 = 8;
/// A line of a name below the x axis.
pub(super) const NAME_ROW: i32 = 14;
const CAPTION_ROW: i32 = 17;
const CAPTION_PX: i32 = 12;

/// Characters of a caption's line: 864 pixels at 6.75 each.
const CAPTION_CHARS: usize = 128;

/// Lines of a caption; what is longer is cut, and said to be. More would leave no room for a chart.
const CAPTION_LINES_MAX: usize = 7;

/// Characters of a legend entry; a longer one is cut.
const LEGEND_CHARS_MAX: usize = 32;

/// The chart on it.
pub(super) type Chart<'a> =
    ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The texts around a chart, and its ranges.
pub(super) struct Page<'a> {
    title: &'a str,
    caption: &'a str,
    x_label: &'a str,
    y_label: &'a str,
    x_range: Range<f64>,
    y_range: Range<f64>,
    /// Lines of what the caller writes in the place of numbers on x; `None` where there are numbers.
    pub(super) name_lines: Option<i32>,
    legend: Vec<Key<'a>>,
}

/// One entry of the legend.
pub(super) struct Key<'a> {
    pub(super) name: &'a str,
    pub(super) symbol: Symbol,
}

/// What stands before an entry of the legend.
#[derive(Clone, Copy)]
pub(super) enum Symbol {
    /// A line with the marker of this series, in the colour of this group.
    Line { series: usize, group: usize },
    /// A filled box in the colour of this group.
    Box { group: usize },
    /// Dashes.
    Dashes,
}

impl<'a> Page<'a> {
    /// The page of a figure; what it shows has these y.
    pub(super) fn new(
        figure: &'a Figure,
        x_range: Range<f64>,
        values: impl Iterator<Item = f64>,
        legend: Vec<Key<'a>>,
    ) -> Self {
        let y_range = match figure.y_range {
            Some((least, greatest)) if least < greatest => least..greatest,
            _ => fitting(values),
        };
        Self {
            title: &figure.title,
            caption: &figure.caption,
            x_label: &figure.x_label,
            y_label: &figure.y_label,
            x_range,
            y_range,
            name_lines: None,
            legend,
        }
    }

    /// Draws the page, has `fill` draw into the chart, and gives the SVG.
    pub(super) fn draw(
        &self,
        fill: impl FnOnce(&Area<'_>, &Chart<'_>) -> Drawn,
    ) -> Result<String, FigureError> {
        let mut svg = String::new();
        let units = [WIDTH, HEIGHT].map(|pixels| px(pixels).unsigned_abs());
        {
            let page = SVGBackend::with_string(&mut svg, units.into()).into_drawing_area();
            drawn(page.fill(&WHITE))?;
            let caption = wrap(self.caption, CAPTION_CHARS, CAPTION_LINES_MAX);
            self.draw_texts(&page, &caption)?;
            self.draw_legend(&page, caption.len() as i32)?;
            let chart = self.chart(&page, caption.len() as i32)?;
            fill(&page, &chart)?;
            drawn(page.present())?;
        }
        Ok(self.with_head(&svg))
    }

    fn draw_texts(&self, page: &Area<'_>, caption: &[String]) -> Drawn {
        let centre = px(WIDTH - self.legend_width()) / 2;
        let title = cut(self.title, 80);
        write(
            page,
            &title,
            (centre, px(TITLE / 2 + 2)),
            TITLE_PX,
            HPos::Center,
        )?;
        let first = HEIGHT - MARGIN / 2 - CAPTION_ROW * caption.len() as i32;
        for (line, row) in caption.iter().zip(0..) {
            let y = first + CAPTION_ROW * row + CAPTION_ROW / 2;
            write(page, line, (px(MARGIN), px(y)), CAPTION_PX, HPos::Left)?;
        }
        Ok(())
    }

    /// Wide enough for its longest entry, at 8 pixels a character.
    fn legend_width(&self) -> i32 {
        let longest = self.legend.iter().map(|key| key.name.chars().count()).max();
        longest.map_or(MARGIN, |chars| {
            LEGEND_KEY + 8 * chars.clamp(6, LEGEND_CHARS_MAX) as i32 + MARGIN
        })
    }

    /// How wide the chart is between its axes, in pixels.
    pub(super) fn chart_width(&self) -> i32 {
        WIDTH - self.legend_width() - MARGIN - MARGIN / 2 - Y_LABELS - CHART_RIGHT
    }

    fn draw_legend(&self, page: &Area<'_>, caption_lines: i32) -> Drawn {
        let left = px(WIDTH - self.legend_width() + 8);
        let height = bottom(caption_lines) - TITLE;
        let row_height = LEGEND_ROW.min(height / self.legend.len().max(1) as i32);
        for (key, row) in self.legend.iter().zip(0..) {
            let y = px(TITLE + row_height * row + row_height / 2);
            let (begin, end) = ((left, y), (left + px(26), y));
            match key.symbol {
                Symbol::Line { series, group } => {
                    let line = PathElement::new(vec![begin, end], stroke(colour(group), 15));
                    drawn(page.draw(&line))?;
                    draw_marker(page, (left + px(13), y), series, colour(group))?;
                }
                Symbol::Box { group } => {
                    let corners = [(begin.0 + px(7), y - px(6)), (end.0 - px(7), y + px(6))];
                    let filled = colour(group).filled();
                    drawn(page.draw(&plotters::element::Rectangle::new(corners, filled)))?;
                }
                Symbol::Dashes => {
                    draw_dashes(page, begin.0..end.0, y, stroke(BLACK.mix(0.7), 12))?;
                }
            }
            let name = cut(key.name, LEGEND_CHARS_MAX);
            write(page, &name, (left + px(33), y), LABEL_PX, HPos::Left)?;
        }
        Ok(())
    }

    fn chart<'c>(&self, page: &Area<'c>, caption_lines: i32) -> Result<Chart<'c>, FigureError> {
        let place = page.clone().shrink(
            (px(MARGIN / 2), px(TITLE)),
            (
                px(WIDTH - self.legend_width() - MARGIN),
                px(bottom(caption_lines) - TITLE),
            ),
        );
        let mut chart = ChartBuilder::on(&place)
            .margin_top(px(4))
            .margin_right(px(CHART_RIGHT))
            .x_label_area_size(px(
                44 + NAME_ROW * self.name_lines.map_or(0, |lines| lines - 1)
            ))
            .y_label_area_size(px(Y_LABELS))
            .build_cartesian_2d(self.x_range.clone(), self.y_range.clone())
            .map_err(|error| FigureError::Draw(error.to_string()))?;
        let spans = [&self.x_range, &self.y_range].map(|range| range.end - range.start);
        let [x_number, y_number] = spans.map(|span| move |number: &f64| tick(*number, span));
        let no_number = |_: &f64| String::new();
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh()
            .x_desc(self.x_label)
            .y_desc(self.y_label)
            .y_label_formatter(&y_number)
            .set_all_tick_mark_size(px(4))
            .axis_style(stroke(BLACK.mix(0.6), 10))
            .bold_line_style(stroke(BLACK.mix(0.12), 8))
            .light_line_style(WHITE.mix(0.0))
            .label_style(text(LABEL_PX, HPos::Center))
            .axis_desc_style(text(LABEL_PX + 1, HPos::Center))
            .x_labels(12)
            .y_labels(9);
        if self.name_lines.is_none() {
            mesh.x_label_formatter(&x_number);
        } else {
            mesh.x_labels(0).x_label_formatter(&no_number);
        }
        drawn(mesh.draw())?;
        Ok(chart)
    }

    /// Puts size, title and description into the SVG's first tag: the size in pixels, though the
    /// drawing is in units, and the texts whole, for those who hear them read or search them.
    fn with_head(&self, svg: &str) -> String {
        let (_, body) = svg.split_once(">\n").unwrap_or(("", svg));
        let (width, height) = (px(WIDTH), px(HEIGHT));
        let (title, caption) = (escape(self.title), escape(self.caption));
        format!(
            "<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {width} {height}\" \
             xmlns=\"http://www.w3.org/2000/svg\" role=\"img\">\n\
             <title>{title}</title>\n<desc>{caption}</desc>\n{body}"
        )
    }
}

/// Where the chart's place ends, in pixels from the top.
fn bottom(caption_lines: i32) -> i32 {
    HEIGHT - MARGIN / 2 - CAPTION_ROW * caption_lines - 12
}

/// Writes one line of text.
pub(super) fn write(page: &Area<'_>, line: &str, at: (i32, i32), pixels: i32, end: HPos) -> Drawn {
    drawn(page.draw(&Text::new(line.to_owned(), at, text(pixels, end))))
}

/// The ranges' default: from 0, or a little below the least, to a little above the greatest.
fn fitting(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (mut least, mut greatest) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|value| value.is_finite()) {
        (least, greatest) = (least.min(value), greatest.max(value));
    }
    match (least, greatest) {
        _ if least > greatest => 0.0..1.0,
        (0.0.., 0.0) => 0.0..1.0,
        (0.0.., _) => 0.0..greatest * 1.06,
        _ => {
            let margin = ((greatest - least) * 0.06).max(1e-6);
            least - margin..greatest + margin
        }
    }
}

/// A number on an axis of this length, to a thousandth of it, without needless zeros.
fn tick(number: f64, span: f64) -> String {
    let (mut decimals, mut unit) = (0, span / 1_000.0);
    while unit < 0.999 && decimals < 12 {
        (decimals, unit) = (decimals + 1, unit * 10.0);
    }
    let text = format!("{number:.decimals$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    if text == "-0" { "0" } else { text }.to_owned()
}

fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(chars_max - 1).collect();
    format!("{}…", kept.trim_end())
}

/// Breaks a text between words; a word that is longer than a line is cut. The last of too many
/// lines ends with an ellipsis.
pub(super) fn wrap(text: &str, chars: usize, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = cut(word, chars);
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= chars => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    if lines.len() > lines_max {
        lines.truncate(lines_max);
        if let Some(last) = lines.last_mut() {
            *last = cut(&format!("{last} …"), chars);
        }
    }
    lines
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
