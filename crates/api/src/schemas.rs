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
use crate::routes::routes;

use super::*;

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
    for route in routes() {
        let Some((summary, of)) = route.description else {
            continue;
        };
        let parameters: Vec<_> = route
            .parameters
            .split_whitespace()
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
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method] = operation;
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
