//! A job from a TOML file.
//!
//! Invariant: what is not understood is refused, with its file, line and key; values and weights are read from
//! their digits, never through a float.

use std::collections::BTreeMap;

use fairmesh_site::RUN_BYTES_MAX;
use serde::Deserialize;
use toml::Spanned;

use fairmesh_api::{ForwardAsk, PlaceAsk, RequireAsk};
use fairmesh_node::config::quantity::{RawDuration, RawFactor};
use fairmesh_node::config::{FileError, Source};
use fairmesh_node::control::{wish, wishes};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawJob {
    vo: Option<String>,
    user: Option<String>,
    account: Option<String>,
    group: Option<String>,
    subject: Option<String>,
    cpus: Spanned<u32>,
    #[serde(default)]
    nodes: u32,
    #[serde(default)]
    gpus: u32,
    memory: Option<Spanned<String>>,
    disk: Option<Spanned<String>>,
    input: Option<Spanned<String>>,
    output: Option<Spanned<String>>,
    time: Option<RawDuration>,
    queue: Option<String>,
    #[serde(default)]
    properties: Vec<String>,
    #[serde(default)]
    require: Vec<RawRequire>,
    #[serde(default)]
    normalised: bool,
    /// Its user's name for it, where it is handed in.
    key: Option<Spanned<String>>,
    /// Anything, for the submit command of the site that it goes to.
    run: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRequire {
    kind: Spanned<String>,
    options: BTreeMap<Spanned<String>, RawFactor>,
    weight: Option<RawFactor>,
}

/// Reads a job, and what is needed to hand it in. `file` is for error messages.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn parse(text: &str, file: &str) -> Result<ForwardAsk, FileError> {
    let source = Source { file, text };
    let raw: RawJob = source.parse()?;
    if *raw.cpus.get_ref() == 0 {
        return Err(source.error(Some(raw.cpus.span()), Some("cpus"), "must be at least 1"));
    }
    let size = |key: &str, given: &Option<Spanned<String>>| {
        given
            .as_ref()
            .map_or(Ok(0), |given| source.mebibytes(key, given))
    };
    let time = raw.time.as_ref();
    let time = time.map_or(Ok(0), |time| {
        source.duration("time", time).map(|of| of.0.div_ceil(1_000))
    })?;
    let require = raw.require.iter().map(|of| requirement(source, of));
    let require = require.collect::<Result<Vec<_>, _>>()?;
    let wall = fairmesh_model::Millis::from_secs(time);
    if let Err(problem) = wishes(&require, wall) {
        let first = raw.require.first().map(|of| of.kind.span());
        return Err(source.error(first, Some("require"), problem));
    }
    if let Some(run) = raw
        .run
        .as_ref()
        .filter(|run| run.get_ref().len() > RUN_BYTES_MAX)
    {
        let problem =
            format!("it has more than {RUN_BYTES_MAX} bytes: stage what is larger, and name it");
        return Err(source.error(Some(run.span()), Some("run"), problem));
    }
    let job = PlaceAsk {
        cpus: *raw.cpus.get_ref(),
        mem_mib: size("memory", &raw.memory)?,
        disk_mib: size("disk", &raw.disk)?,
        staged_mib: size("input", &raw.input)?.saturating_add(size("output", &raw.output)?),
        wall_s: time,
        require,
        vo: raw.vo,
        user: raw.user,
        account: raw.account,
        group: raw.group,
        subject: raw.subject,
        nodes: raw.nodes,
        gpus: raw.gpus,
        queue: raw.queue,
        properties: raw.properties,
        normalised: raw.normalised,
        ..PlaceAsk::default()
    };
    Ok(ForwardAsk {
        key: raw.key.map(Spanned::into_inner),
        run: raw.run.map(Spanned::into_inner),
        ttl: None,
        job,
    })
}

fn requirement(source: Source<'_>, raw: &RawRequire) -> Result<RequireAsk, FileError> {
    let kind = raw.kind.get_ref();
    let part = |key: &str, given: &RawFactor| {
        let factor = source.factor(key, given)?.millionths();
        match factor <= fairmesh_broker::utility::ONE {
            true => Ok(factor),
            false => Err(source.error(Some(given.span()), Some(key), "it is from 0 to 1")),
        }
    };
    let option = |(text, value): (&Spanned<String>, &RawFactor)| {
        wish(kind, text.get_ref()).map_err(|problem| {
            let at = match problem.contains("no kind of wish") {
                true => (raw.kind.span(), "require.kind"),
                false => (text.span(), "require.options"),
            };
            source.error(Some(at.0), Some(at.1), problem)
        })?;
        Ok((text.get_ref().clone(), part("require.options", value)?))
    };
    let weight = raw.weight.as_ref();
    Ok(RequireAsk {
        kind: kind.clone(),
        options: raw.options.iter().map(option).collect::<Result<_, _>>()?,
        weight: weight.map_or(Ok(fairmesh_broker::utility::ONE), |of| {
            part("require.weight", of)
        })?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_as_it_is_written() {
        let text = "user = \"ann\"\ncpus = 8\nmemory = \"16GiB\"\ninput = \"2GiB\"\noutput = \"1GiB\"\ntime = \"90m\"\n\
                    [[require]]\nkind = \"os\"\noptions = { macos = 1.0, linux = 0.5 }\nweight = 0.25\n\
                    [[require]]\nkind = \"memory\"\noptions = { 64GiB = 1, 32GiB = 0.1 }\n";
        let job = parse(text, "job.toml").expect("valid").job;
        assert_eq!((job.cpus, job.mem_mib, job.wall_s), (8, 16 << 10, 5_400));
        assert_eq!((job.disk_mib, job.staged_mib), (0, 3 << 10));
        let os = &job.require[0];
        assert_eq!(
            os.options,
            [
                ("linux".to_owned(), 500_000),
                ("macos".to_owned(), 1_000_000)
            ]
        );
        assert_eq!((os.weight, job.require[1].weight), (250_000, 1_000_000));
    }

    #[test]
    fn mistakes_are_shown_where_they_are() {
        let require = |keys: &str| format!("cpus = 1\n[[require]]\n{keys}\n");
        let rows = [
            ("".to_owned(), "job.toml:1:1: missing field `cpus`"),
            (
                "cpus = 0".to_owned(),
                "job.toml:1:8: `cpus`: must be at least 1",
            ),
            ("cpu = 1".to_owned(), "job.toml:1:1: unknown field `cpu`"),
            (
                "cpus = 1\nmemory = \"16\"".to_owned(),
                "job.toml:2:10: `memory`: `16` is not a size",
            ),
            (
                "cpus = 1\ntime = \"soon\"".to_owned(),
                "job.toml:2:8: `time`: `soon` is not a length",
            ),
            (
                require("kind = \"colour\"\noptions = { red = 1 }"),
                "job.toml:3:8: `require.kind`: `colour` is no kind",
            ),
            (
                require("kind = \"cpus\"\noptions = { many = 1 }"),
                "job.toml:4:13: `require.options`: `many` is no number of CPUs",
            ),
            (
                require("kind = \"os\"\noptions = { linux = 1.5 }"),
                "job.toml:4:21: `require.options`: it is from 0 to 1",
            ),
            (
                require("kind = \"os\"\noptions = {}"),
                "job.toml:3:8: `require`: requirement 1: it has no options",
            ),
            (
                require("kind = \"time\"\noptions = { 1h = 1 }"),
                "job.toml:3:8: `require`: a wish for time needs the job's own",
            ),
        ];
        for (text, expected) in rows {
            let error = parse(&text, "job.toml")
                .err()
                .map(|error| error.to_string());
            let error = error.unwrap_or_else(|| panic!("{text}: it is taken"));
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
