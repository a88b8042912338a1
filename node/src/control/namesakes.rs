//! `GET /v1/namesakes`: accounts that several sites charge usage to as if it were one person's, where nothing states that it is.
//!
//! Two people of one name, at two sites whose templates have `{user}`, pay for each other. A node cannot know whether they are two;
//! its owner can, and states it by a row of the people map, a rule for that user, or a template with the site or the Grid
//! identity.
//!
//! Invariant: the tables are listed on the node's task and read on another thread, and only for somebody who asks. An account
//! is named to readers who see its usage, and counted for others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::response::Response;
use fairmesh_api::finding::{Code, Finding};
use fairmesh_api::{NamesakeBody, NamesakesBody};
use fairmesh_model::{AccountPath, Now, Severity, SiteId, VoId, clean};
use fairmesh_site::{Account, KnownUsage, Site, View};

use super::blocking::BlockingAnswer;
use super::error::ApiError;
use super::extract::{Nothing, Params};
use super::rests_on::site_names;
use super::{Shared, State};
use crate::driver::Gone;
use crate::privacy::{PrivateData, Visibility};

/// Accounts that one answer names: more are counted.
const NAMED_MAX: usize = 1_000;

/// Accounts that a line names.
const NAMED_IN_LINE: usize = 5;

/// What a site holds, to be searched on another thread.
pub(crate) struct Held {
    view: Arc<View>,
    vos: Vec<(VoId, Option<String>, KnownUsage)>,
    names: BTreeMap<SiteId, String>,
}

pub(super) async fn get(
    axum::extract::State(shared): State,
    visibility: Visibility,
    blocking: BlockingAnswer,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Response, ApiError> {
    let (rests_on, held) = shared.ask(|site, now| Ok(Held::of(site, now))).await?;
    let sees = move |account: &Account| visibility.sees_alone(PrivateData::Usage, account);
    blocking
        .answer("namesakes", rests_on, move |_| Ok(held.body(sees)))
        .await
}

impl Held {
    /// Asks the node's task.
    pub(crate) async fn ask(shared: &Shared) -> Result<Self, Gone> {
        shared.node().ask(Self::of).await
    }

    fn of(site: &Site, now: Now) -> Self {
        let vos = site.vo_status(now).into_iter().map(|of| {
            let name = of.name.as_deref().map(clean);
            (of.vo, name, site.known_usage(Some(of.vo)))
        });
        Self {
            vos: vos.collect(),
            view: site.view(),
            names: site_names(site),
        }
    }

    /// What is found, as a reader sees it who `sees` the usage of some accounts.
    pub(crate) fn body(&self, sees: impl Fn(&Account) -> bool) -> NamesakesBody {
        let mut body = NamesakesBody::default();
        for (vo, vo_name, known) in &self.vos {
            let account = |path: &AccountPath| Account {
                vo: Some(*vo),
                path: path.clone(),
            };
            let is_of_members = |site: &SiteId| self.names.contains_key(site);
            let mixed = known.of_several_sites(|path| self.view.may_mix_namesakes(&account(path)));
            for (path, mut sites) in mixed {
                sites.retain(is_of_members);
                if sites.len() < 2 {
                    continue;
                }
                body.count += 1;
                if body.accounts.len() < NAMED_MAX && sees(&account(&path)) {
                    body.accounts.push(NamesakeBody {
                        vo: vo.to_string(),
                        vo_name: vo_name.clone(),
                        account: clean(path.as_str()),
                        sites: self.names_of(&sites),
                    });
                }
            }
        }
        body
    }

    fn names_of(&self, sites: &BTreeSet<SiteId>) -> Vec<String> {
        let names = sites.iter().filter_map(|site| self.names.get(site));
        let mut names: Vec<String> = names.cloned().collect();
        names.sort_unstable();
        names
    }
}

/// The warning, where there is something to warn of.
pub fn finding(body: &NamesakesBody) -> Option<Finding> {
    if body.count == 0 {
        return None;
    }
    let (accounts, each) = match body.count {
        1 => ("1 account gets".to_owned(), "it"),
        count => (format!("{count} accounts get"), "each"),
    };
    let named = body.accounts.iter().take(NAMED_IN_LINE).map(|of| {
        let vo = of.vo_name.as_ref().unwrap_or(&of.vo);
        format!("{} of {vo} ({})", of.account, of.sites.join(", "))
    });
    let mut named: Vec<String> = named.collect();
    let more = body
        .count
        .saturating_sub(u64::try_from(named.len()).unwrap_or(u64::MAX));
    if more > 0 && !named.is_empty() {
        named.push(format!("and {more} more"));
    }
    let list = if named.is_empty() { "" } else { ": " };
    let text = format!(
        "{accounts} usage from several sites, and nothing at this site states that {each} is one person{list}{}",
        named.join(", ")
    );
    Some(Finding::new(Code::Namesakes, Severity::Warning, &text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(count: u64, accounts: &[&str]) -> NamesakesBody {
        let account = |account: &&str| NamesakeBody {
            vo: "ab".repeat(32),
            vo_name: Some("cms".to_owned()),
            account: (*account).to_owned(),
            sites: vec!["prague".to_owned(), "tokyo".to_owned()],
        };
        let accounts = accounts.iter().map(account).collect();
        NamesakesBody { count, accounts }
    }

    #[test]
    fn a_warning_names_some_and_counts_all() {
        let text = |body| finding(&body).map(|found| found.text);
        assert_eq!(text(body(0, &[])), None);
        assert_eq!(
            text(body(1, &["/ann"])).expect("found"),
            "1 account gets usage from several sites, and nothing at this site states that it is one person: \
             /ann of cms (prague, tokyo)"
        );
        assert!(
            text(body(3, &[]))
                .expect("found")
                .ends_with("that each is one person")
        );
        let many = text(body(9, &["/a", "/b", "/c", "/d", "/e", "/f"])).expect("found");
        assert!(
            many.ends_with("/e of cms (prague, tokyo), and 4 more"),
            "{many}"
        );
    }
}
