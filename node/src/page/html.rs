//! The frame of every page, and what all of them are made of.
//!
//! Invariant: every text goes through the template, which escapes it; words of others were made visible where they
//! came in (`AccountPath`, `clean`).

use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use fairmesh_api::client::encoded;
use fairmesh_api::words::{age, timestamp};
use fairmesh_model::{Millis, WallTime};
use maud::{DOCTYPE, Markup, html};

use super::page_data::PageData;

const DAY_MS: u64 = 86_400_000;

/// A page as an answer.
pub(super) fn answer(page: Markup) -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "text/html; charset=utf-8")],
        page.into_string(),
    )
}

/// A page about a state that was seen.
pub(super) fn page(data: &PageData, title: &str, body: Markup) -> Markup {
    let site = fairmesh_model::clean(&data.said.status.node.name);
    frame(&format!("{title} · {site}"), Some(data), body)
}

/// What somebody sees who asked for what is not there.
pub(super) fn refusal(status: StatusCode, why: &str) -> Markup {
    let body = html! {
        h1 { (status.canonical_reason().unwrap_or("Refused")) }
        p { (why) "." }
        p { a href="/" { "The share tree" } }
    };
    frame("Fairmesh", None, body)
}

fn frame(title: &str, data: Option<&PageData>, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="stylesheet" href={ "/page.css?" (env!("CARGO_PKG_VERSION")) };
                link rel="icon" type="image/svg+xml" href="/icon.svg";
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    nav aria-label="Site" {
                        a.home href="/" { "Fairmesh" }
                        @if data.is_some() {
                            a href="/#tree" { "Shares" }
                            a href="/#sites" { "Sites" }
                            a href="/#documents" { "Documents" }
                            a href="/#notices" { "Notices" }
                        }
                    }
                    form action="/find" method="get" role="search" {
                        label.hidden for="q" { "Find a user, project or VO" }
                        input #q name="q" type="search" placeholder="User, project or VO" maxlength="200";
                        button type="submit" { "Find" }
                    }
                }
                main #main { (body) }
                footer { @if let Some(data) = data { (rests_on(data)) } }
            }
        }
    }
}

/// What the page is made of.
fn rests_on(data: &PageData) -> Markup {
    let rests_on = &data.said.rests_on;
    let coverage = &rests_on.coverage;
    let stalest = coverage.stalest.as_ref();
    html! {
        p {
            "As of " time datetime=(rests_on.as_of) { (date_time(WallTime(rests_on.as_of_ms))) } ", "
            (coverage.sites_known) " of " (coverage.sites_total) " sites known"
            @if let Some(of) = stalest {
                ", oldest " (of.name.as_deref().unwrap_or(&of.site)) " " (age(Millis(of.age_ms))) " ago"
            }
            ". Ranks are those that the scheduler gets. Fairmesh " (data.said.status.node.version) "."
        }
    }
}

/// Where the page of an entry is.
pub(super) fn entry_link(path: &str) -> String {
    match path {
        "/" => "/".to_owned(),
        path => format!("/entry?path={}", encoded(path)),
    }
}

/// Where the numbers beside a picture are.
pub(super) fn csv_link(address: &str, what: &str) -> Markup {
    html! { p.csv { a href=(address) download { "CSV" span.hidden { " of " (what) } } } }
}

pub(super) fn date(at: WallTime) -> String {
    timestamp(at).chars().take(10).collect()
}

/// A day, and the hour where it is not the first.
pub(super) fn moment(at: WallTime) -> String {
    match at.0.is_multiple_of(DAY_MS) {
        true => date(at),
        false => date_time(at),
    }
}

fn date_time(at: WallTime) -> String {
    let text: String = timestamp(at).chars().take(16).collect();
    format!("{} UTC", text.replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_one_part_of_an_address() {
        assert_eq!(entry_link("/"), "/");
        assert_eq!(
            entry_link("/VO A/p&q=#ü"),
            "/entry?path=/VO%20A/p%26q%3D%23%C3%BC"
        );
    }
}
