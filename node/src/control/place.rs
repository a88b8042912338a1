//! `POST /v1/place`: where a job should run, by what this node knows; and `POST /v1/occupancy`: what the site's own
//! scheduler says of itself.
//!
//! Invariant: every member site is in the answer, with its verdict, a reason and the age of what is known of it.
//! What is told is advice: with `confirm` the best site has said so itself a moment ago.

use std::sync::Arc;

use axum::body::Body;
use axum::response::IntoResponse;
use fairmesh_api::{
    MetBody, OccupancyAsk, OccupancyBody, PlaceAsk, PlaceBody, PlacedBody, RefusedBody, SlaBody,
    StandingBody,
};
use fairmesh_broker::utility::{Class, Matching, Utility, Wishes};
use fairmesh_broker::weigh::weigh;
use fairmesh_broker::{Chooser, Engine, Known, Ranked, Ranking, Request, Selector, Verdict, rank};
use fairmesh_cluster::{Seed, Stream};
use fairmesh_fairshare::Job;
use fairmesh_fairshare::charging::Resources;
use fairmesh_model::record::{PROPERTIES_MAX, RUN_MAX};
use fairmesh_model::{
    Factor, Importance, JobKey, Millis, Now, Origin, Placement, Share, SiteId, UsageRecord, VoId,
    WallTime, clean,
};
use fairmesh_site::{
    Account, Advert, AdvertAnswer, AdvertCall, Occupancy, Site, WAITING_MAX, Words,
};

use super::error::ApiError;
use super::extract::json;
use super::moment::fraction;
use super::rests_on::answer;
use super::usage::find_vo;
use super::{Shared, State};
use crate::control::wishes;
use crate::privacy::{PrivateData, Visibility};

/// Largest question: a job with all its wishes.
const ASK_BYTES_MAX: usize = 512 << 10;

/// Largest word of a scheduler: what the accounts that it names take.
const OCCUPANCY_BYTES_MAX: usize = 8 << 20;

/// Rounds of asking the best sites themselves; and how many of them at once.
const CONFIRM_ROUNDS: usize = 4;
const CONFIRM_AT_ONCE: usize = 4;

/// A question that makes sense.
struct Question {
    ask: PlaceAsk,
    origin: Origin,
    wishes: Option<Wishes>,
    engine: Engine,
    selector: Selector,
}

/// What the node knows.
struct Gathered {
    vo: VoId,
    vo_name: Option<String>,
    account: Option<Account>,
    silence: Millis,
    /// Sites that say what is free there, in the order of the charter.
    candidates: Vec<(SiteId, Candidate)>,
    /// Those that do not, by name.
    silent: Vec<(SiteId, String)>,
}

/// A site that says what is free there.
struct Candidate {
    known: Known,
    /// The class that is worth most to the job, where it wishes anything: its place among the site's.
    best: Option<usize>,
    confirmed: bool,
    /// Why it could not say so itself.
    unconfirmed: Option<String>,
}

impl Question {
    fn of(ask: PlaceAsk) -> Result<Self, ApiError> {
        if ask.cpus == 0 || Millis::from_secs(ask.wall_s) > RUN_MAX {
            let error = "a job asks for one CPU or more, and for ten years at most";
            return Err(ApiError::bad_request(error));
        }
        // Each class of each site is compared with all of them.
        if ask.properties.len() > PROPERTIES_MAX {
            let error = format!("a job asks for {PROPERTIES_MAX} properties at most");
            return Err(ApiError::bad_request(error));
        }
        let wishes = wishes(&ask.require, Millis::from_secs(ask.wall_s));
        let wishes = wishes.map_err(ApiError::bad_request)?;
        let engine = ask
            .engine
            .as_deref()
            .map_or(Ok(Engine::default()), str::parse);
        let usual = match wishes {
            Some(_) => Selector::Utility,
            None => Selector::default(),
        };
        let selector = ask.selector.as_deref().map_or(Ok(usual), str::parse);
        Ok(Self {
            origin: Origin {
                user: ask.user.clone(),
                account: ask.account.clone(),
                group: ask.group.clone(),
                subject: ask.subject.clone(),
            },
            wishes,
            engine: engine.map_err(ApiError::bad_request)?,
            selector: selector.map_err(ApiError::bad_request)?,
            ask,
        })
    }

    fn request<'a>(&'a self, vo: &'a str) -> Request<'a> {
        let ask = &self.ask;
        Request {
            vo,
            job: Job {
                held: Resources {
                    cores: ask.cpus.into(),
                    gpus: ask.gpus.into(),
                    mem_mib: ask.mem_mib,
                    disk_mib: ask.disk_mib,
                    nodes: ask.nodes,
                },
                queue: ask.queue.as_deref(),
                properties: &ask.properties,
                ..Job::default()
            },
            wall: Millis::from_secs(ask.wall_s),
            staged_mib: ask.staged_mib,
        }
    }

    /// As a record of the job, had it run as long as it may up to now.
    fn record(&self, now: WallTime) -> UsageRecord {
        let ask = &self.ask;
        UsageRecord {
            key: JobKey {
                cluster: "place".to_owned(),
                job: "place".to_owned(),
                instance: 0,
            },
            origin: self.origin.clone(),
            start: WallTime(now.0.saturating_sub(ask.wall_s * 1_000)),
            end: now,
            cores: ask.cpus,
            gpus: ask.gpus,
            mem_mib: ask.mem_mib,
            placement: Placement {
                nodes: ask.nodes,
                disk_mib: ask.disk_mib,
                queue: ask.queue.clone(),
                properties: ask.properties.clone(),
                ..Placement::default()
            },
            running: false,
        }
    }

    fn gather(&self, site: &Site, now: Now) -> Result<Gathered, ApiError> {
        let account = match self.origin == Origin::default() {
            true => None,
            false => site.view().account(Words {
                queue: self.ask.queue.as_deref(),
                ..Words::from(&self.origin)
            }),
        };
        let vo = match &self.ask.vo {
            Some(wanted) => find_vo(site, now, wanted)?,
            None => account
                .as_ref()
                .and_then(|account| account.vo)
                .ok_or_else(|| {
                    ApiError::bad_request("it is not known in which VO the job is").hint(
                        "name the VO, or a user and account that an identity rule maps into one",
                    )
                })?,
        };
        let status = site.vo_status(now).into_iter().find(|of| of.vo == vo);
        let (mut candidates, mut silent) = (Vec::new(), Vec::new());
        for (id, known) in site.known_sites(now, vo) {
            match known {
                Some(known) => candidates.push((id, Candidate::of(known))),
                None => {
                    let name = site.site_name_in(vo, id);
                    silent.push((id, name.map_or_else(|| id.to_string(), clean)));
                }
            }
        }
        Ok(Gathered {
            vo,
            vo_name: status.and_then(|of| of.name).as_deref().map(clean),
            account: account.filter(|account| account.vo == Some(vo)),
            silence: site.silence(),
            candidates,
            silent,
        })
    }

    /// Works out what is free of the machines that suit the job, and what they are worth to it.
    fn weigh(&self, request: &Request<'_>, candidate: &mut Candidate) {
        let wishes = self.wishes.as_ref().map(|of| (of, self.ask.normalised));
        candidate.best = weigh(&mut candidate.known, request, wishes);
    }

    /// The name of a site's best class, what it is worth, and by which options.
    fn best_of<'a>(&self, of: &'a Candidate) -> Option<(&'a str, Utility)> {
        let (name, class) = of.known.view.machines.as_ref()?.class(of.best?);
        let class = Class::of(name, class, 0);
        let wishes = self.wishes.as_ref()?;
        let worth = wishes.utility(&class, Matching::Partial, self.ask.normalised)?;
        Some((name, worth))
    }
}

impl Candidate {
    /// A site as its advert has it, not weighed yet.
    fn of(known: Known) -> Self {
        Self {
            known,
            best: None,
            confirmed: false,
            unconfirmed: None,
        }
    }

    /// Whether nobody has asked the site itself.
    fn is_open(&self) -> bool {
        !self.confirmed && self.unconfirmed.is_none()
    }
}

pub(super) async fn post(
    axum::extract::State(shared): State,
    visibility: Visibility,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let ask: PlaceAsk = json(&shared, body, ASK_BYTES_MAX).await?;
    let question = Arc::new(Question::of(ask)?);
    let asked = Arc::clone(&question);
    let known = move |site: &Site, now: Now| asked.gather(site, now);
    let (rests_on, mut gathered) = shared.ask(known).await?;
    // Beside the task that answers everybody.
    let vo = gathered.vo.to_string();
    let request = question.request(&vo);
    for (_, candidate) in &mut gathered.candidates {
        question.weigh(&request, candidate);
    }
    let served = shared.options.serving.fresh().await?;
    let view = &served.view;
    let entry = gathered.account.as_ref();
    let entry = entry.map(|account| view.locate_in(served.order.snapshot(), account).entry);
    // An account may be his own that has no entry: what stands there then is a group's.
    let entry =
        entry.filter(|of| visibility.sees_entry(PrivateData::Priority, view.reader().path(*of)));
    let standing = entry.map(|entry| {
        let ranking = served.order.ranking();
        StandingBody {
            entry: clean(view.reader().path(entry).as_str()),
            factor: fraction(served.order.factor(entry)),
            rank: ranking.rank(entry),
            ranks: ranking.count(),
        }
    });
    let mut ranked = gathered.rank(&question);
    if question.ask.confirm {
        ranked = confirm(&shared, &question, &mut gathered, ranked).await?;
    }
    let sites_total = ranked.taken.len();
    let listed = match question.ask.top {
        0 => sites_total,
        top => top.min(sites_total),
    };
    ranked.taken.truncate(listed);
    let sites: Vec<SiteId> = ranked
        .taken
        .iter()
        .map(|(index, _)| gathered.candidates[*index].0)
        .collect();
    let asked = Arc::clone(&question);
    let quoted = move |site: &Site, now: Now| asked.quotes(site, now, &sites);
    let quotes = shared.node().ask(quoted).await?;
    let body = PlaceBody {
        standing,
        sites_total,
        ..gathered.body(&question, &ranked, quotes)
    };
    Ok(answer("place", rests_on, body))
}

impl Question {
    fn quotes(&self, site: &Site, now: Now, sites: &[SiteId]) -> Vec<Result<u64, String>> {
        let record = self.record(now.wall);
        let quote = |of: &SiteId| match self.ask.wall_s {
            0 => Err("the job does not say how long it runs".to_owned()),
            _ => site
                .quote(now, &record, Importance::default(), *of)
                .map(|quote| quote.cost.0),
        };
        sites.iter().map(quote).collect()
    }
}

impl Gathered {
    fn rank(&self, question: &Question) -> Ranked {
        let known: Vec<&Known> = self.candidates.iter().map(|(_, of)| &of.known).collect();
        let vo = self.vo.to_string();
        let chooser = Chooser::new(question.selector);
        let by = Ranking {
            engine: question.engine,
            silence: Some(self.silence),
            chooser: &chooser,
        };
        let mut stream: Stream = Seed(question.ask.seed).stream("place");
        rank(&known, &question.request(&vo), by, &mut |bound| {
            stream.below(bound)
        })
    }

    fn body(
        &self,
        question: &Question,
        ranked: &Ranked,
        quotes: Vec<Result<u64, String>>,
    ) -> PlaceBody {
        let taken = ranked.taken.iter().zip(quotes);
        let taken = taken.map(|((index, verdict), quote)| {
            placed(question, &self.candidates[*index], verdict, quote)
        });
        let mut refused: Vec<RefusedBody> = ranked
            .refused
            .iter()
            .map(|(index, verdict)| {
                let (id, of) = &self.candidates[*index];
                RefusedBody {
                    name: clean(&of.known.view.name),
                    site: id.to_string(),
                    code: match verdict {
                        Verdict::No(refusal) => refusal.code().to_owned(),
                        _ => String::new(),
                    },
                    age_s: of.known.view.age.map(|age| age.0 / 1_000),
                    reason: verdict.reason(&of.known.view, question.selector),
                }
            })
            .collect();
        refused.extend(self.silent.iter().map(|(id, name)| RefusedBody {
            name: name.clone(),
            site: id.to_string(),
            code: "no-advert".to_owned(),
            age_s: None,
            reason: "it publishes nothing of what is free there ([advert])".to_owned(),
        }));
        refused.sort_by(|a, b| a.name.cmp(&b.name));
        PlaceBody {
            vo: self.vo.to_string(),
            vo_name: self.vo_name.clone(),
            cpus: question.ask.cpus.into(),
            engine: question.engine.to_string(),
            selector: question.selector.to_string(),
            seed: question.ask.seed,
            standing: None,
            sites_total: 0,
            sites: taken.collect(),
            refused,
        }
    }
}

fn placed(
    question: &Question,
    (id, of): &(SiteId, Candidate),
    verdict: &Verdict,
    quote: Result<u64, String>,
) -> PlacedBody {
    let view = &of.known.view;
    let standing = view.vos.values().next();
    let best = question.best_of(of);
    let mut reason = verdict.reason(view, question.selector);
    if let Some(why) = &of.unconfirmed {
        reason += &format!("; not confirmed: {}", clean(why));
    }
    let met = question
        .ask
        .require
        .iter()
        .enumerate()
        .map(|(index, require)| {
            let taken = best.as_ref().and_then(|(_, worth)| worth.taken[index]);
            MetBody {
                kind: clean(&require.kind),
                option: taken.map(|option| clean(&require.options[option].0)),
            }
        });
    PlacedBody {
        name: clean(&view.name),
        site: id.to_string(),
        verdict: verdict.word().to_owned(),
        beyond: *verdict == Verdict::Now { beyond: true },
        free: view.idle(),
        used: view.total.saturating_sub(view.idle()),
        total: view.total,
        waiting: view.waiting,
        wait_s: verdict.wait_s(),
        age_s: view.age.map(|age| age.0 / 1_000),
        reason,
        confirmed: of.confirmed,
        sla: standing.map(|standing| SlaBody {
            epoch_used: Share::from_ratio(standing.epoch_used, u64::from(Share::ONE)).to_string(),
            epoch_share: standing.epoch_share.to_string(),
            sign: match standing.sign {
                fairmesh_broker::Sign::Target => "target",
                fairmesh_broker::Sign::AtMost => "at-most",
                fairmesh_broker::Sign::AtLeast => "at-least",
            }
            .to_owned(),
            held: standing.burst_used,
            limit: standing.burst_limit,
            extensible: standing.extensible,
        }),
        charge_core_ms: quote.as_ref().ok().map(u64::to_string),
        charge_why_not: quote.err().map(|why| clean(&why)),
        utility: best
            .as_ref()
            .map(|(_, worth)| Factor::from_millionths(worth.millionths).to_string()),
        class: best.as_ref().map(|(class, _)| clean(class)),
        met: met.collect(),
    }
}

/// Asks the best sites themselves, and ranks anew by what they say, until the best has said so itself.
async fn confirm(
    shared: &Shared,
    question: &Question,
    gathered: &mut Gathered,
    mut ranked: Ranked,
) -> Result<Ranked, ApiError> {
    for _ in 0..CONFIRM_ROUNDS {
        let best = ranked.taken.iter();
        let best = best.map(|(index, _)| &gathered.candidates[*index]);
        if !best.clone().next().is_some_and(|(_, of)| of.is_open()) {
            break;
        }
        let open = best.filter(|(_, of)| of.is_open()).map(|(id, _)| *id);
        let sites: Vec<SiteId> = open.take(CONFIRM_AT_ONCE).collect();
        let vo = gathered.vo;
        let call = AdvertCall::Confirm { vo, sites };
        let AdvertAnswer::Confirmed(said) = shared.node().advert(call).await? else {
            unreachable!("a question to sites is answered by them")
        };
        let known = move |site: &Site, now: Now| {
            let named = (vo, &vo.to_string().into());
            let known = |(id, advert): (SiteId, Result<Advert, String>)| {
                (id, advert.map(|of| site.known_by(now, named, id, &of)))
            };
            said.into_iter().map(known).collect::<Vec<_>>()
        };
        for (id, said) in shared.node().ask(known).await? {
            let mut candidates = gathered.candidates.iter_mut();
            let Some((_, held)) = candidates.find(|(of, _)| *of == id) else {
                continue;
            };
            match said {
                Ok(known) => {
                    *held = Candidate::of(known);
                    held.confirmed = true;
                    question.weigh(&question.request(&vo.to_string()), held);
                }
                Err(why) => held.unconfirmed = Some(why),
            }
        }
        ranked = gathered.rank(question);
        // Who does not say so himself comes behind those who do.
        let is_unconfirmed = |index: usize| gathered.candidates[index].1.unconfirmed.is_some();
        ranked
            .taken
            .sort_by_key(|(index, _)| is_unconfirmed(*index));
    }
    Ok(ranked)
}

pub(super) async fn post_occupancy(
    axum::extract::State(shared): State,
    body: Body,
) -> Result<impl IntoResponse, ApiError> {
    let told: OccupancyAsk = json(&shared, body, OCCUPANCY_BYTES_MAX).await?;
    let staged = told.staged.as_ref().map_or(0, Vec::len);
    if told.waiting.len().max(staged) > WAITING_MAX {
        let error = format!("more than {WAITING_MAX} accounts; nothing was changed");
        return Err(ApiError::bad_request(error).hint("sum them up by account"));
    }
    let waiting = told.waiting.into_iter().map(|of| (of.origin, of.cpus));
    let staged = told.staged.map(|staged| {
        let staged = staged.into_iter().map(|of| (of.origin, of.mib));
        staged.collect()
    });
    let occupancy = Occupancy {
        total: told.total.map(u64::from),
        free: told.free.map(u64::from),
        wait: told.wait_s.map(Millis::from_secs),
        waiting: waiting.collect(),
        staged,
    };
    shared.node().advert(AdvertCall::Report(occupancy)).await?;
    let said = |site: &Site, _| Ok(site.tells_what_is_free());
    let (rests_on, is_told) = shared.ask(said).await?;
    Ok(answer("occupancy", rests_on, OccupancyBody { is_told }))
}
