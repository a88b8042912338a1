//! What there is on `control.sock`: one table, of which the node's router, its hint for unknown paths and the OpenAPI
//! description are made.

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// Every user that can open the socket; each user's requests are answered in turn.
    Readers,
    /// Those who may write.
    Writers,
    /// That depends on the parameters.
    Either,
}

/// A method of a path.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Who may use it.
    pub callers: Callers,
    /// `get` or `post`.
    pub method: &'static str,
    /// With `/v1/`.
    pub path: &'static str,
    /// Names, separated by blanks; `*` is behind those that there must be.
    pub parameters: &'static str,
    /// What it is for, and the schema of its answer, by file; none for what the OpenAPI description leaves out.
    pub description: Option<(&'static str, &'static str)>,
}

/// A line for each route: callers, method, path, parameters, purpose, and the file of the answer's schema. Routes without
/// a purpose are not in the OpenAPI description: `/v1/slurm` stands for the loops of all batch systems.
const TABLE: &str = "\
reads get /v1/status digests: The node, its VOs, its peers, and what is wrong: status-1
reads get /v1/peers: The other sites: peers-1
reads get /v1/shares path user depth limit after: The share tree in force, target against actual: shares-1
reads get /v1/prices vo site: What each site's machines cost: prices-1
reads get /v1/sites vo*: How the sites of a VO stand: sites-1
reads get /v1/priority user account group subject queue qos path: Where a user or an entry stands: priority-1
reads get /v1/explain user account group subject versus versus_account versus_group versus_subject: Why a user or an entry stands there: explain-1
reads get /v1/usage vo path limit after: Raw usage, exact: usage-1
reads get /v1/unmapped: Whom no identity rule maps: unmapped-1
reads get /v1/namesakes: Accounts that may mix people of one name: namesakes-1
either get /v1/accounting by* since until user account group vo state queue cluster: Sums of the job records that are kept: accounting-1
writes get /v1/audit job by limit: What was taken back, by whom and why: audit-1
writes get /v1/refused limit: Jobs that the node refused for good, and files with rejects: refused-1
reads get /v1/documents: The signed documents: documents-1
reads get /v1/forward job own: Jobs that sites pass on to each other, and where they are: forward-1
writes get /v1/forward/here: Jobs that wait for the batch system here, or are to be withdrawn from it: forward-here-1
reads get /v1/quota vo path: The credit of each account that has one: quota-1
reads get /v1/quota/history vo path all month: An account's credit, document by document: quota_history-1
reads get /v1/quota/summary vo path month: What a month's jobs were charged: quota_summary-1
reads get /v1/metrics
either post /v1/accounting dry_run at_site: Report job records as batch systems wrote them: report-1
writes post /v1/records: Report usage, one JSON object a line: records-1
writes post /v1/running: Tell the node which jobs run, one JSON object a line: records-1
writes post /v1/rejects: List lines of a file that could not be read, or take the file out with a count of 0: rejects-1
writes post /v1/corrections why* by: Take jobs back that were reported in error: corrections-1
writes post /v1/remap since* dry_run why by: Move usage to the accounts that today's identity rules name: remap-1
writes post /v1/documents: Publish a signed document: published-1
writes post /v1/slurm: Tell the node what the loops with Slurm have done: slurm-1
writes post /v1/gridengine
writes post /v1/condor
writes post /v1/pbs
writes post /v1/lsf
writes post /v1/follow
writes post /v1/occupancy: Tell the node what is free: occupancy-1
reads post /v1/place: Where a job should run: place-1
reads post /v1/forward: Hand in a job for the mesh: forward-1
writes post /v1/forward/here: Tell the node what came of a job at the batch system: forward-settled-1
reads post /v1/forward/withdraw: Take a job back: forward-1
writes post /v1/quota/hold: Hold what a job may cost: hold-1
writes post /v1/quota/commit: Charge a job that has ended: settled-1
writes post /v1/quota/release: Give back what a job holds: settled-1
writes post /v1/quota/drain: Send this site's credit to the others, before it leaves: settled-1
reads post /v1/quota/check: Whether a job would have credit: hold-1
reads post /v1/quota/quote: What a job would cost at each site: quotes-1";

/// All routes, in the order in which a hint lists them.
pub fn routes() -> impl Iterator<Item = Route> {
    TABLE.lines().map(|line| {
        let (asked, description) = match line.split_once(": ") {
            Some((asked, described)) => (asked, described.rsplit_once(": ")),
            None => (line, None),
        };
        let mut words = asked.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default();
        Route {
            callers: match word() {
                "reads" => Callers::Readers,
                "writes" => Callers::Writers,
                _ => Callers::Either,
            },
            method: word(),
            path: word(),
            parameters: word(),
            description,
        }
    })
}

/// All paths, for a request to a path that does not exist.
pub fn hint() -> String {
    let paths = |method| {
        let paths = routes().filter(move |route| route.method == method);
        let paths = paths.map(|route| route.path.trim_start_matches("/v1/"));
        paths.collect::<Vec<_>>().join(", ")
    };
    format!("/v1/{}; POST /v1/{}", paths("get"), paths("post"))
}
