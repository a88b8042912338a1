//! The JSON schemas in `docs/schemas`, and the OpenAPI description made of them: made of the types that the server
//! writes, and compared with what is there.
//!
//! `FAIRMESH_WRITE_SCHEMAS=1` writes them anew.

use std::path::Path;

use crate::record_log::LogState;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::json;

use crate::finding::DoctorBody;

use super::{
    AccountingBody, Answer, AuditBody, CorrectionsBody, DocumentsBody, ErrorBody, ExplainBody,
    ForwardBody, ForwardSettledBody, HereBody, HoldBody, NamesakesBody, OccupancyBody, PeersBody,
    PlaceBody, PricesBody, PriorityBody, PublishedBody, QuotaBody, QuotaHistoryBody,
    QuotaSummaryBody, QuotesBody, RefusedJobsBody, RejectsBody, RemapBody, ReportBody, SettledBody,
    SharesBody, SitesBody, StatusBody, SummaryBody, UnmappedBody, UsageBody,
};

fn written<T: JsonSchema>() -> schemars::Schema {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    generator.into_root_schema_for::<T>()
}

fn answer<T: JsonSchema>(name: &str) -> (String, String) {
    answer_in::<T>(&file(name), name)
}

/// The same, where two answers have one name: one is the other with more fields.
fn answer_in<T: JsonSchema>(file: &str, name: &str) -> (String, String) {
    let mut schema = written::<Answer<T>>();
    schema.insert("title".to_owned(), json!(name));
    let named = schema
        .pointer_mut("/properties/schema")
        .and_then(serde_json::Value::as_object_mut);
    named
        .expect("a field")
        .insert("const".to_owned(), json!(name));
    (file.to_owned(), text(&schema))
}

/// What a command writes that rests on no one answer.
fn command<T: JsonSchema>(name: &str) -> (String, String) {
    let mut schema = written::<T>();
    schema.insert("title".to_owned(), json!(name));
    let field = json!({"type": "string", "const": name});
    let properties = schema.pointer_mut("/properties");
    let properties = properties.and_then(serde_json::Value::as_object_mut);
    let properties = properties.expect("a struct");
    properties.insert("schema".to_owned(), field);
    (file(name), text(&schema))
}

/// `fairmesh.shares/1` is in `shares-1.json`.
fn file(name: &str) -> String {
    format!(
        "{}.json",
        name.trim_start_matches("fairmesh.").replace('/', "-")
    )
}

/// What `control.sock` is asked for, a line each: method, path and parameters (`*` behind those that there must be), what
/// for, and the file of the answer's schema.
const PATHS: &str = "\
get /v1/status digests: The node, its VOs, its peers, and what is wrong: status-1
get /v1/peers: The other sites: peers-1
get /v1/shares path user depth limit after: The share tree in force, target against actual: shares-1
get /v1/priority user account group subject queue qos path: Where somebody stands: priority-1
get /v1/explain user account group subject versus versus_account versus_group versus_subject: Why somebody stands there: explain-1
get /v1/usage vo path limit after: Raw usage, exact: usage-1
get /v1/unmapped: Whom no identity rule maps: unmapped-1
get /v1/namesakes: Accounts that may mix people of one name: namesakes-1
get /v1/accounting by* since until user account group vo state queue cluster: Sums of the job records that are kept: accounting-1
get /v1/refused limit: Jobs that the node refused for good, and files with rejects: refused-1
get /v1/audit job by limit: What was taken back, by whom and why: audit-1
get /v1/prices vo site: What each site's machines cost: prices-1
get /v1/documents: The signed documents: documents-1
get /v1/quota vo path: The credit of each account that has one: quota-1
get /v1/quota/history vo path all month: An account's credit, document by document: quota_history-1
get /v1/quota/summary vo path month: What a month's jobs were charged: quota_summary-1
post /v1/records: Report usage, one JSON object a line: records-1
post /v1/rejects: List lines of a file that could not be read, or take the file out with a count of 0: rejects-1
post /v1/running: Tell the node which jobs run, one JSON object a line: records-1
post /v1/accounting dry_run at_site: Report job records as batch systems wrote them: report-1
post /v1/corrections why* by: Take jobs back that were reported in error: corrections-1
post /v1/remap since* dry_run why by: Move usage to the accounts that today's identity rules name: remap-1
post /v1/documents: Publish a signed document: published-1
post /v1/slurm: Tell the node what the loops with Slurm have done: slurm-1
post /v1/quota/check: Whether a job would have credit: hold-1
post /v1/quota/hold: Hold what a job may cost: hold-1
post /v1/quota/commit: Charge a job that has ended: settled-1
post /v1/quota/release: Give back what a job holds: settled-1
post /v1/quota/drain: Send this site's credit to the others, before it leaves: settled-1
post /v1/quota/quote: What a job would cost at each site: quotes-1
get /v1/sites vo*: How the sites of a VO stand: sites-1
post /v1/place: Where a job should run: place-1
post /v1/occupancy: Tell the node what is free: occupancy-1
get /v1/forward job own: Jobs that sites pass on to each other, and where they are: forward-1
post /v1/forward: Hand in a job for the mesh: forward-1
post /v1/forward/withdraw: Take a job back: forward-1
get /v1/forward/here: Jobs that wait for the batch system here, or are to be withdrawn from it: forward-here-1
post /v1/forward/here: Tell the node what came of a job at the batch system: forward-settled-1";

/// The description of `control.sock`, of the schemas by file.
fn openapi(schemas: &[(String, String)]) -> String {
    let mut components = serde_json::Map::new();
    for (file, schema) in schemas {
        let schema = schema.replace("#/$defs/", "#/components/schemas/");
        let mut schema: serde_json::Value = serde_json::from_str(&schema).expect("JSON");
        let own = schema.as_object_mut().expect("an object");
        own.remove("$schema");
        if let Some(serde_json::Value::Object(defined)) = own.remove("$defs") {
            components.extend(defined);
        }
        components.insert(file.trim_end_matches(".json").to_owned(), schema);
    }
    let response = |words: &str, of: &str| {
        let schema = json!({"$ref": format!("#/components/schemas/{of}")});
        json!({"description": words, "content": {"application/json": {"schema": schema}}})
    };
    let mut paths = serde_json::Map::new();
    for line in PATHS.lines() {
        let [asked, summary, of] = line.split(": ").collect::<Vec<_>>()[..] else {
            panic!("three parts: {line}");
        };
        let mut words = asked.split(' ');
        let (method, path) = (
            words.next().expect("a method"),
            words.next().expect("a path"),
        );
        let parameters: Vec<_> = words
            .map(|name| {
                let bare = name.trim_end_matches('*');
                json!({"name": bare, "in": "query", "required": name != bare, "schema": {"type": "string"}})
            })
            .collect();
        let operation = json!({
            "summary": summary,
            "parameters": parameters,
            "responses": {"200": response(summary, of), "default": response("What is wrong, and what to do", "error")},
        });
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        methods[method] = operation;
    }
    let info = json!({
        "title": "Fairmesh: control.sock",
        "version": "1",
        "description": "HTTP/1.1 over a Unix socket. Whoever can open it may read; SO_PEERCRED decides who may write. No `Host` but `fairmesh` is answered.",
    });
    let api = json!({
        "openapi": "3.1.0",
        "info": info,
        "servers": [{"url": "http://fairmesh"}],
        "paths": paths,
        "components": {"schemas": components},
    });
    serde_json::to_string_pretty(&api).expect("plain data") + "\n"
}

fn text(schema: &schemars::Schema) -> String {
    serde_json::to_string_pretty(schema).expect("plain data") + "\n"
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test, which writes what it compares with"
)]
fn the_schemas_in_docs_are_those_of_the_answers() {
    let schemas = [
        answer::<StatusBody>("fairmesh.status/1"),
        answer::<PeersBody>("fairmesh.peers/1"),
        answer::<DocumentsBody>("fairmesh.documents/1"),
        answer::<PublishedBody>("fairmesh.published/1"),
        answer::<SharesBody>("fairmesh.shares/1"),
        answer::<PriorityBody>("fairmesh.priority/1"),
        answer::<ExplainBody>("fairmesh.explain/1"),
        answer::<UsageBody>("fairmesh.usage/1"),
        answer::<UnmappedBody>("fairmesh.unmapped/1"),
        answer::<NamesakesBody>("fairmesh.namesakes/1"),
        answer::<AccountingBody>("fairmesh.report/1"),
        answer_in::<ReportBody>("records-1.json", "fairmesh.report/1"),
        answer::<SummaryBody>("fairmesh.accounting/1"),
        answer::<CorrectionsBody>("fairmesh.corrections/1"),
        answer::<RemapBody>("fairmesh.remap/1"),
        answer::<RefusedJobsBody>("fairmesh.refused/1"),
        answer::<RejectsBody>("fairmesh.rejects/1"),
        answer::<AuditBody>("fairmesh.audit/1"),
        answer::<PricesBody>("fairmesh.prices/1"),
        answer::<LogState>("fairmesh.slurm/1"),
        answer::<QuotaBody>("fairmesh.quota/1"),
        answer::<QuotaHistoryBody>("fairmesh.quota_history/1"),
        answer::<QuotaSummaryBody>("fairmesh.quota_summary/1"),
        answer::<HoldBody>("fairmesh.hold/1"),
        answer::<SettledBody>("fairmesh.settled/1"),
        answer::<QuotesBody>("fairmesh.quotes/1"),
        answer::<SitesBody>("fairmesh.sites/1"),
        answer::<PlaceBody>("fairmesh.place/1"),
        answer::<OccupancyBody>("fairmesh.occupancy/1"),
        answer::<ForwardBody>("fairmesh.forward/1"),
        answer::<HereBody>("fairmesh.forward-here/1"),
        answer::<ForwardSettledBody>("fairmesh.forward-settled/1"),
        command::<DoctorBody>("fairmesh.doctor/1"),
        ("error.json".to_owned(), text(&written::<ErrorBody>())),
    ];
    let api = ("openapi.json".to_owned(), openapi(&schemas));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    let is_written = std::env::var_os("FAIRMESH_WRITE_SCHEMAS").is_some();
    for (name, schema) in schemas.into_iter().chain([api]) {
        let path = folder.join(&name);
        if is_written {
            std::fs::create_dir_all(&folder).expect("makes the folder");
            std::fs::write(&path, &schema).expect("writes");
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            there, schema,
            "{name} is old: run this test with FAIRMESH_WRITE_SCHEMAS=1"
        );
    }
}
