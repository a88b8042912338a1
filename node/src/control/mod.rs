//! The server of `control.sock`: HTTP/1.1 and JSON, for people, feeds and tools.
//!
//! `curl --unix-socket control.sock http://fairmesh/v1/status` works. Whoever can open the socket
//! may read; SO_PEERCRED decides who may write. No other host than `fairmesh` is answered.
//!
//! Invariants: every answer names its schema and what it rests on; every failure is
//! `{"error", "hint"}` with a status that fits; what was acknowledged is durable. Connections,
//! bodies, lines and waiting times have named limits, and a bad line of a feed never stops the rest.
//!
//! `fairmesh-api` has the types of all answers and the table of routes; here one file per group of endpoints makes them.
//! Deliberately not here: priorities for schedulers (`lookup`), tables (`ask`).

mod access;
mod blocking;
mod connections;
mod error;
mod extract;
mod feed;
mod lines;
mod log;
mod loop_states;
mod loops;
pub(crate) mod metrics;
mod moment;
mod rests_on;
mod text;
mod unread;

mod accounting;
mod corrections;
mod documents;
mod explain;
mod forward;
mod health;
pub mod namesakes;
mod notice;
mod peers;
mod place;
mod prices;
mod priority;
mod quota;
mod quota_history;
mod records;
mod refused;
mod remap;
mod shares;
mod sites;
mod status;
mod usage;
mod wish;
mod without_line;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{MethodRouter, get, post};
use fairmesh_api::routes::{Callers, Route, hint, routes};
use fairmesh_model::{Millis, SiteId, VoId};
use fairmesh_records::ChargeRule;
use fairmesh_schedulers::NAMES;
use fairmesh_site::Timing;
use tokio::sync::watch;

pub use access::{current as current_access, trusted};
pub use connections::ControlServer;
pub use rests_on::rests_on;

use crate::driver::NodeHandle;
use crate::lookup::LookupStats;
use crate::network::Throttle;
use crate::privacy::{Access, VisibilityResolver};
use crate::projection::ProjectionName;
use crate::record_log::RecordLog;
use crate::refused::Refused;
use crate::serve::Serving;
use crate::sockets::{BindError, SlotLimits};
pub(crate) use connections::serve;
pub(crate) use documents::Document;
pub(crate) use error::ApiError;
pub(crate) use explain::explained;
pub(crate) use extract::Params;
use loops::Loops;
pub(crate) use moment::{Moment, fraction};
pub(crate) use quota::accounts_with_credit;
pub(crate) use status::status;
pub(crate) use wish::requirements;
pub use wish::{wish, wishes};

/// What an operator may change while the node runs: a reload sends a new one.
#[derive(Debug, Clone, Default)]
pub struct ControlSettings {
    /// What people call the site.
    pub name: String,
    /// Who may write, and who sees what.
    pub access: Arc<Access>,
    /// The site's intervals, to judge what is late.
    pub timing: Timing,
    /// What the owner calls the VOs: in the record log.
    pub vos: BTreeMap<VoId, String>,
    /// Which jobs are charged, and for how long.
    pub charge_rule: ChargeRule,
    /// The order in which entries are served.
    pub projection: ProjectionName,
    /// Why the configuration was rejected when it was read again last; the one before it stays in force.
    pub rejected: Option<String>,
    /// The feeds that the configuration names, by batch system, with the pause between their rounds.
    pub feeds: BTreeMap<&'static str, Millis>,
}

/// Limits of the server.
#[derive(Debug, Clone)]
pub struct ControlLimits {
    /// Most connections: each may hold a line and a batch of records.
    pub slots: SlotLimits,
    /// How long a request's head may take, and a connection lie idle between two.
    pub head_deadline: Duration,
    /// How long the next piece of a body may take.
    pub body_idle_max: Duration,
    /// How long an answer may take to make, once the request is here.
    pub answer_deadline: Duration,
    /// How long sums of the record log may take: some millions of jobs.
    pub sums_deadline: Duration,
    /// How long a connection may live, whatever it does: a reader who never reads ends here.
    pub connection_age_max: Duration,
    /// How long connections get to finish when the server stops.
    pub stop_grace: Duration,
}

impl Default for ControlLimits {
    fn default() -> Self {
        Self {
            slots: SlotLimits::CONTROL,
            head_deadline: Duration::from_secs(30),
            body_idle_max: Duration::from_secs(30),
            answer_deadline: Duration::from_secs(60),
            sums_deadline: Duration::from_secs(300),
            connection_age_max: Duration::from_secs(1_800),
            stop_grace: Duration::from_secs(5),
        }
    }
}

/// What the server serves from.
#[derive(Clone)]
pub struct ControlOptions {
    /// The node.
    pub node: NodeHandle,
    /// The order in which it serves.
    pub serving: Arc<Serving>,
    /// Its identity.
    pub site: SiteId,
    /// Where it listens.
    pub listening: Vec<String>,
    /// What a reload may change.
    pub settings: watch::Receiver<ControlSettings>,
    /// Counters of `lookup.sock`, for the metrics.
    pub lookups: Option<Arc<LookupStats>>,
    /// Where job records are kept, if they are.
    pub records: Option<Arc<RecordLog>>,
    /// What was refused for good.
    pub refused: Arc<Refused>,
    /// Limits.
    pub limits: ControlLimits,
}

/// What every handler sees.
pub(crate) struct Shared {
    pub(crate) options: ControlOptions,
    pub(crate) started: Instant,
    pub(crate) loops: Loops,
    /// Whose usage, jobs and priorities each user sees.
    pub(crate) resolver: VisibilityResolver,
    /// Lines about what users may not do: any of them can provoke these, as fast as he likes.
    refusals: Mutex<Throttle>,
}

/// The state of the router.
pub(crate) type State = axum::extract::State<Arc<Shared>>;

impl Shared {
    pub(crate) fn new(options: ControlOptions) -> Self {
        Self {
            resolver: VisibilityResolver::new(access::current(&options.settings)),
            options,
            started: Instant::now(),
            loops: Loops::default(),
            refusals: Mutex::default(),
        }
    }

    /// Which jobs are charged, by the configuration in force.
    fn charge_rule(&self) -> ChargeRule {
        self.options.settings.borrow().charge_rule.clone()
    }

    /// `Some(n)` where a line about a refusal may be written now, after `n` that were not.
    fn may_tell_of_refusal(&self) -> Option<u64> {
        let refusals = self.refusals.lock();
        let mut refusals = refusals.unwrap_or_else(PoisonError::into_inner);
        refusals.pass(Instant::now())
    }

    pub(crate) fn node(&self) -> &NodeHandle {
        &self.options.node
    }
}

/// Makes the socket at `path`; [`ControlServer::run`] then serves it. A stale socket is replaced,
/// one that another node answers on is an error. Must be called within a tokio runtime.
pub async fn bind(path: &Path, options: ControlOptions) -> Result<ControlServer, BindError> {
    ControlServer::bind(path, options).await
}

/// What follows files for `fairmesh report` speaks as a loop of this name.
const FOLLOW: &str = "follow";

/// What answers a route: each row of the table has it.
fn handler(route: &Route) -> MethodRouter<Arc<Shared>> {
    match (route.method, route.path) {
        ("get", "/v1/status") => get(status::get),
        ("get", "/v1/peers") => get(peers::get),
        ("get", "/v1/shares") => get(shares::get),
        ("get", "/v1/prices") => get(prices::get),
        ("get", "/v1/sites") => get(sites::get),
        ("get", "/v1/priority") => get(priority::get),
        ("get", "/v1/explain") => get(explain::get),
        ("get", "/v1/usage") => get(usage::get),
        ("get", "/v1/unmapped") => get(usage::get_unmapped),
        ("get", "/v1/namesakes") => get(namesakes::get),
        ("get", "/v1/accounting") => get(accounting::get),
        ("get", "/v1/audit") => get(corrections::get_audit),
        ("get", "/v1/refused") => get(refused::get),
        ("get", "/v1/documents") => get(documents::get),
        ("get", "/v1/forward") => get(forward::get),
        ("get", "/v1/forward/here") => get(forward::get_here),
        ("get", "/v1/quota") => get(quota::get),
        ("get", "/v1/quota/history") => get(quota_history::history),
        ("get", "/v1/quota/summary") => get(quota_history::summary),
        ("get", "/v1/metrics") => get(metrics::get),
        ("post", "/v1/accounting") => post(accounting::post),
        ("post", "/v1/records") => post(records::post_records),
        ("post", "/v1/running") => post(records::post_running),
        ("post", "/v1/rejects") => post(refused::post_rejects),
        ("post", "/v1/corrections") => post(corrections::post),
        ("post", "/v1/remap") => post(remap::post),
        ("post", "/v1/documents") => post(documents::post),
        ("post", "/v1/occupancy") => post(place::post_occupancy),
        ("post", "/v1/place") => post(place::post),
        ("post", "/v1/forward") => post(forward::post),
        ("post", "/v1/forward/here") => post(forward::post_here),
        ("post", "/v1/forward/withdraw") => post(forward::post_withdraw),
        ("post", "/v1/quota/hold") => post(quota::hold),
        ("post", "/v1/quota/commit") => post(quota::commit),
        ("post", "/v1/quota/release") => post(quota::release),
        ("post", "/v1/quota/drain") => post(quota::drain),
        ("post", "/v1/quota/check") => post(quota::check),
        ("post", "/v1/quota/quote") => post(quota::quote),
        (_, path) => {
            // Where the loops with a batch system say what they have done.
            let mut systems = NAMES.into_iter().chain([FOLLOW]);
            let system = systems.find(|system| path.strip_prefix("/v1/") == Some(system));
            let system = system.expect("each row of the table has a handler");
            post(move |state: State, body| loops::post(system, state, body))
        }
    }
}

/// All endpoints, for one connection.
fn router(shared: Arc<Shared>) -> Router {
    let of = |callers| {
        let routes = routes().filter(|route| route.callers == callers);
        routes.fold(Router::new(), |router, route| {
            router.route(route.path, handler(&route))
        })
    };
    let no_such = |status, error| ApiError::new(status, error).hint(hint());
    let writes = of(Callers::Writers).route_layer(axum::middleware::from_fn_with_state(
        Arc::clone(&shared),
        access::require_writer,
    ));
    let reads = of(Callers::Readers).route_layer(axum::middleware::from_fn_with_state(
        Arc::clone(&shared),
        access::answer_in_turn,
    ));
    let missing = "there is nothing at this path";
    let other = "this path does not take this method";
    reads
        .merge(writes)
        .merge(of(Callers::Either))
        .fallback(async move || no_such(StatusCode::NOT_FOUND, missing))
        .method_not_allowed_fallback(async move || no_such(StatusCode::METHOD_NOT_ALLOWED, other))
        .layer(axum::middleware::from_fn(access::require_host))
        .with_state(shared)
}

#[cfg(test)]
pub(crate) mod tests;
