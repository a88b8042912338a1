//! The JSON schemas in `docs/schemas`: made of the types that the server writes, and compared with what is there.
//!
//! `FAIRMESH_WRITE_SCHEMAS=1` writes them anew. Deliberately not here: answers about placement and quotas.

use std::path::Path;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::json;

use crate::doctor::DoctorBody;

use super::{
    AccountingBody, Answer, AuditBody, CorrectionsBody, DocumentsBody, ErrorBody, ExplainBody,
    LoopsHeard, PeersBody, PricesBody, PriorityBody, PublishedBody, SharesBody, StatusBody,
    SummaryBody, UnmappedBody, UsageBody,
};

fn written<T: JsonSchema>() -> schemars::Schema {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    generator.into_root_schema_for::<T>()
}

fn answer<T: JsonSchema>(name: &str) -> (String, String) {
    let mut schema = written::<Answer<T>>();
    schema.insert("title".to_owned(), json!(name));
    let named = schema
        .pointer_mut("/properties/schema")
        .and_then(serde_json::Value::as_object_mut);
    named
        .expect("a field")
        .insert("const".to_owned(), json!(name));
    (file(name), text(&schema))
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

fn text(schema: &schemars::Schema) -> String {
    serde_json::to_string_pretty(schema).expect("plain data") + "\n"
}

#[test]
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
        answer::<AccountingBody>("fairmesh.report/1"),
        answer::<SummaryBody>("fairmesh.accounting/1"),
        answer::<CorrectionsBody>("fairmesh.corrections/1"),
        answer::<AuditBody>("fairmesh.audit/1"),
        answer::<PricesBody>("fairmesh.prices/1"),
        answer::<LoopsHeard>("fairmesh.slurm/1"),
        command::<DoctorBody>("fairmesh.doctor/1"),
        ("error.json".to_owned(), text(&written::<ErrorBody>())),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas");
    let is_written = std::env::var_os("FAIRMESH_WRITE_SCHEMAS").is_some();
    for (name, schema) in schemas {
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
