//! Bars: what was used step by step against the target, and single ones in the cells of tables.
//!
//! Positions are percentages and heights are pixels, as in the icicle.

use maud::{Markup, html};

use super::figures::{hours, percent};
use super::html::moment;
use super::usage::{EntryUsage, Step};

const HEIGHT: f64 = 150.0;

/// What was used in time, with the target where there is one.
pub(super) fn history(used: &EntryUsage, name: &str) -> Markup {
    let steps = &used.steps;
    let Some((first, last)) = steps.first().zip(steps.last()) else {
        return html! { p { "No usage is held." } };
    };
    let target = |step: &Step| used.target.map(|share| of(step.parent) * share);
    let most = steps
        .iter()
        .flat_map(|step| [of(step.own), target(step).unwrap_or(0.0)])
        .fold(1.0, f64::max);
    let count = of(steps.len() as u64);
    let label = format!(
        "Usage of {name} from {} to {}, at most {} core-hours a step; all figures are in the table below",
        moment(first.start),
        moment(last.start),
        hours(most)
    );
    let x = |at: usize| of(at as u64) * 100.0 / count;
    let height = |amount: f64| (amount / most * HEIGHT).max(if amount > 0.0 { 1.0 } else { 0.0 });
    html! {
        p.scale { (hours(most)) " core-hours" }
        svg.history role="img" aria-label=(label) width="100%" height=(HEIGHT) {
            @for (at, step) in steps.iter().enumerate() {
                @let tall = height(of(step.own));
                rect.used x={ (x(at) + 10.0 / count) "%" } width={ (80.0 / count) "%" } y=(HEIGHT - tall) height=(tall) {
                    title { (told(step, target(step))) }
                }
                @if let Some(target) = target(step) {
                    @let y = HEIGHT - height(target).clamp(1.0, HEIGHT - 1.0);
                    line.target x1={ (x(at)) "%" } x2={ (x(at) + 100.0 / count) "%" } y1=(y) y2=(y) {}
                }
            }
        }
        p.scale.ends { span { (moment(first.start)) } span { (moment(last.start)) } }
        p.legend {
            span.key { svg width="14" height="14" aria-hidden="true" { rect.used width="14" height="14" {} } " used" }
            @if used.target.is_some() {
                span.key {
                    svg width="14" height="14" aria-hidden="true" { line.target x1="0" x2="14" y1="7" y2="7" {} }
                    " its target share of what all of its parent used"
                }
            }
        }
    }
}

fn told(step: &Step, target: Option<f64>) -> String {
    let target = target.map(|target| format!(", its target {}", hours(target)));
    format!(
        "{}: {} core-hours{}",
        moment(step.start),
        hours(of(step.own)),
        target.unwrap_or_default()
    )
}

/// The numbers of [`history`].
pub(super) fn history_table(used: &EntryUsage) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { @if used.step_ms < DAY_MS { "Hour" } @else { "Day" } }
                th.number scope="col" { "Used, core-hours" }
                @if used.target.is_some() {
                    th.number scope="col" { "Target" }
                    th.number scope="col" { "All of its parent" }
                }
            } }
            tbody { @for step in used.steps.iter().rev() { tr {
                th scope="row" { (moment(step.start)) }
                td.number { (hours(of(step.own))) }
                @if let Some(share) = used.target {
                    td.number { (hours(of(step.parent) * share)) }
                    td.number { (hours(of(step.parent))) }
                }
            } } }
        }
    }
}

const DAY_MS: u64 = 86_400_000;

/// A bar of so many percent, in a table's cell.
pub(super) fn bar(share: f64) -> Markup {
    html! {
        svg.bar aria-hidden="true" width="100%" height="12" {
            rect.used width={ (format!("{:.2}", share.clamp(0.0, 100.0))) "%" } height="12" {}
        }
    }
}

/// How far `used` is from `target`, both in percent: to the right where it is more.
pub(super) fn balance(used: f64, target: f64, class: &str) -> Markup {
    let scale = |value: f64| (value / 2.0).clamp(-50.0, 50.0);
    // By the ratio, so that small shares show, too: a quarter and four times reach the ends.
    let ratio = match (used > 0.0, target > 0.0) {
        (true, true) => (used / target).log2() * 50.0,
        (true, false) => 100.0,
        (false, true) => -100.0,
        (false, false) => 0.0,
    };
    let length = scale(ratio);
    html! {
        svg.bar aria-hidden="true" width="100%" height="12" {
            rect.(class) x={ (format!("{:.2}", 50.0 + length.min(0.0))) "%" }
                width={ (format!("{:.2}", length.abs())) "%" } height="12" {}
            line.middle x1="50%" x2="50%" y1="0" y2="12" {}
        }
        span.hidden { (percent(used)) " of " (percent(target)) " %" }
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn of(amount: u64) -> f64 {
    amount as f64
}
