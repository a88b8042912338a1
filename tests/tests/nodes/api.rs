//! `docs/schemas/openapi.json` against a real node: what it describes is there, and answers as it says.

mod questions;

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use fairmesh_tests::{Node, Site, Vo, records};
use serde_json::Value;

use crate::PROGRAM;

/// Parameters that a question needs, by path.
const GIVEN: [(&str, &str); 6] = [
    ("/v1/priority", "?user=ann&account=physics"),
    ("/v1/explain", "?user=ann&versus=bob"),
    ("/v1/accounting", "?by=user,day"),
    ("/v1/quota/history", "?path=/ann"),
    ("/v1/quota/summary", "?path=/ann"),
    ("/v1/sites", "?vo=physics"),
];

/// What a schema may say of a value without checking it.
const SAID: [&str; 6] = [
    "title",
    "description",
    "format",
    "default",
    "schema",
    "minimum",
];

/// Whether a value is as a schema says, all of it: a field that the schema does not name is none of the description's.
fn check(api: &Value, schema: &Value, value: &Value, at: &str) -> anyhow::Result<()> {
    let schema = schema
        .as_object()
        .with_context(|| format!("{at}: no schema"))?;
    for (keyword, says) in schema {
        match (keyword.as_str(), says) {
            ("$ref", Value::String(to)) => {
                let to = to.strip_prefix('#').context("a reference within")?;
                let to = api.pointer(to).with_context(|| format!("{at}: no {to}"))?;
                check(api, to, value, at)?;
            }
            ("type", says) => ensure!(is_of(says, value), "{at}: {value} is no {says}"),
            ("const", says) => ensure!(says == value, "{at}: {value} is not {says}"),
            ("anyOf", Value::Array(choices)) => {
                let fits = |choice: &Value| check(api, choice, value, at).is_ok();
                ensure!(
                    choices.iter().any(fits),
                    "{at}: {value} is none of {choices:?}"
                );
            }
            ("items", items) => {
                let values = value.as_array().into_iter().flatten();
                values.enumerate().try_for_each(|(index, value)| {
                    check(api, items, value, &format!("{at}[{index}]"))
                })?;
            }
            ("properties", Value::Object(properties)) => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    let at = format!("{at}.{name}");
                    match properties.get(name) {
                        Some(schema) => check(api, schema, value, &at)?,
                        None => ensure!(
                            schema.contains_key("additionalProperties"),
                            "{at} is not described"
                        ),
                    }
                }
            }
            ("additionalProperties", says) => {
                let named = schema.get("properties").and_then(Value::as_object);
                let more = value.as_object().into_iter().flatten();
                let mut more =
                    more.filter(|(name, _)| !named.is_some_and(|named| named.contains_key(*name)));
                more.try_for_each(|(name, value)| {
                    check(api, says, value, &format!("{at}.{name}"))
                })?;
            }
            ("required", Value::Array(names)) => {
                let is_there =
                    |name: &Value| value.get(name.as_str().unwrap_or_default()).is_some();
                let missing = names.iter().find(|name| !is_there(name));
                ensure!(missing.is_none(), "{at} has no {missing:?}");
            }
            (said, _) if SAID.contains(&said) => {}
            _ => bail!("{at}: this test does not know `{keyword}`"),
        }
    }
    Ok(())
}

/// Whether a value is of a type, or of one of several.
fn is_of(says: &Value, value: &Value) -> bool {
    if let Some(several) = says.as_array() {
        return several.iter().any(|says| is_of(says, value));
    }
    match says.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("null") => value.is_null(),
        _ => false,
    }
}

fn description() -> anyhow::Result<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas/openapi.json");
    Ok(serde_json::from_str(&std::fs::read_to_string(file)?)?)
}

/// A node that has all that the description speaks of, and the site and VO it belongs to.
struct Asked {
    node: Node,
    site: Site,
    vo: Vo,
}

fn asked(folder: &Path) -> anyhow::Result<Asked> {
    let site = Site::init(PROGRAM, &folder.join("a"), "a")?;
    let vo = Vo::found("physics", &[(site.id, "a")], &["ann", "bob"])?;
    site.configure("a", &[], &[("physics", vo.id())])?;
    let mut config = std::fs::read_to_string(site.config())?;
    config.push_str(
        "\n[advert]\n[forward]\naccept_forwarded = [\"physics\"]\n\
         [[machine]]\nclass = \"node\"\ncount = 8\ncpus = 16\nmemory = \"64GiB\"\nspec = 1\n",
    );
    std::fs::write(site.config(), config)?;
    let node = site.start()?;
    vo.publish(&node)?;
    Ok(Asked { node, site, vo })
}

#[test]
fn everything_that_the_description_names_is_there_and_answers_so() -> anyhow::Result<()> {
    let api = description()?;
    let folder = tempfile::tempdir()?;
    let Asked { node, site, vo } = asked(folder.path())?;
    let credit = vo.grant("/ann", 3_600_000, &[site.id], |_| {})?;
    let stray = records("nowhere", "eve", 7, 1);
    let job = r#"{"vo":"physics","user":"ann","account":"physics","cpus":1}"#;
    let handed_in = format!(r#"{{"key":"k","job":{job}}}"#);
    let posted = [
        ("/v1/place", job.as_bytes().to_vec()),
        ("/v1/forward", handed_in.into_bytes()),
        ("/v1/documents", credit),
        (
            "/v1/records",
            [records("physics", "ann", 0, 2), stray].concat(),
        ),
    ];
    let schema_of = |operation: &Value, of: &str| {
        let schema =
            operation.pointer(&format!("/responses/{of}/content/application~1json/schema"));
        schema.cloned().context("no schema")
    };
    for (path, body) in posted {
        let answer = node.http("POST", path, &body)?;
        ensure!(answer.status == 200, "{answer:?}");
        let schema = schema_of(&api["paths"][path]["post"], "200")?;
        check(&api, &schema, &answer.body, path)?;
    }
    let mut asked = 0;
    for (path, methods) in api["paths"].as_object().context("no paths")? {
        for (method, operation) in methods.as_object().context("no methods")? {
            let given = GIVEN.iter().find(|(of, _)| of == path);
            let target = format!("{path}{}", given.map_or("", |(_, given)| given));
            // To what writes, nothing: that it is there, and how it answers.
            let answer = node.http(&method.to_uppercase(), &target, b"")?;
            let is_there = ![404, 405].contains(&answer.status);
            let (of, is_right) = match answer.status {
                200 => ("200", true),
                400..500 => ("default", is_there && method != "get"),
                _ => ("default", false),
            };
            ensure!(is_right, "{method} {target}: {answer:?}");
            check(&api, &schema_of(operation, of)?, &answer.body, &target)?;
            asked += 1;
        }
    }
    ensure!(asked > 20, "{asked}");
    Ok(())
}

#[test]
fn what_is_not_as_described_is_seen() -> anyhow::Result<()> {
    let api = description()?;
    let schema = serde_json::json!({"$ref": "#/components/schemas/Finding"});
    let finding =
        serde_json::json!({"code": "alone", "severity": "error", "text": "no other site"});
    check(&api, &schema, &finding, "finding")?;
    for (pointer, value) in [
        ("code", Value::from(1)),
        ("text", Value::Null),
        ("more", Value::from("x")),
    ] {
        let mut wrong = finding.clone();
        wrong[pointer] = value;
        ensure!(check(&api, &schema, &wrong, "finding").is_err(), "{wrong}");
    }
    let mut short = finding;
    short.as_object_mut().context("an object")?.remove("code");
    ensure!(check(&api, &schema, &short, "finding").is_err());
    Ok(())
}
