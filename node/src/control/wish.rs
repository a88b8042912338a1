//! What jobs wish of machines, from words.
//!
//! Invariant: a wish is of a kind that a class of machines can have, and what is wrong is named.

use fairmesh_api::RequireAsk;
use fairmesh_broker::utility::{Choice, Requirement, Wish, Wishes};
use fairmesh_model::{Factor, Millis};

use crate::config::quantity::{parse_duration, parse_mebibytes};

/// Kinds of wishes.
const KINDS: &str = "os, arch, tag, cpus, memory, disk, speed or time";

/// One way to meet a requirement.
///
/// # Errors
/// What is wrong, and what to write.
pub fn wish(kind: &str, text: &str) -> Result<Wish, String> {
    let wrong = |what: &str, example: &str| format!("`{text}` is no {what}: write {example}");
    let size = || parse_mebibytes(text).ok_or_else(|| wrong("size", "one such as \"64GiB\""));
    Ok(match kind {
        "os" => Wish::Os(text.to_owned()),
        "arch" => Wish::Arch(text.to_owned()),
        "tag" => Wish::Tag(text.to_owned()),
        "cpus" => Wish::Cpus(
            text.parse()
                .map_err(|_| wrong("number of CPUs", "\"16\""))?,
        ),
        "memory" => Wish::MemMib(size()?),
        "disk" => Wish::DiskMib(size()?),
        "speed" => Wish::Spec(Factor::parse(text).map_err(|error| error.to_string())?),
        "time" => {
            Wish::Time(parse_duration(text).ok_or_else(|| wrong("time", "\"90m\" or \"4h\""))?)
        }
        _ => return Err(format!("`{kind}` is no kind of wish: {KINDS}")),
    })
}

/// All wishes of a job; `None` where it has none.
///
/// # Errors
/// The first thing that is wrong.
pub fn wishes(require: &[RequireAsk], wall: Millis) -> Result<Option<Wishes>, String> {
    if require.is_empty() {
        return Ok(None);
    }
    let wishes = Wishes::new(requirements(require, wall)?, wall);
    wishes.map(Some).map_err(|error| error.to_string())
}

/// What a job asks for, from words.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn requirements(
    require: &[RequireAsk],
    wall: Millis,
) -> Result<Vec<Requirement>, String> {
    let requirement = |of: &RequireAsk| {
        let options = of.options.iter();
        let choice = |(text, value): &(String, u32)| {
            let wish = wish(&of.kind, text)?;
            Ok(Choice {
                wish,
                value: *value,
            })
        };
        Ok(Requirement {
            options: options.map(choice).collect::<Result<_, String>>()?,
            weight: of.weight,
        })
    };
    let requirements = require.iter().map(requirement);
    let requirements = requirements.collect::<Result<Vec<_>, String>>()?;
    let is_timed = requirements
        .iter()
        .flat_map(|of| &of.options)
        .any(|of| matches!(of.wish, Wish::Time(_)));
    if is_timed && wall.0 == 0 {
        return Err("a wish for time needs the job's own: say `time`".to_owned());
    }
    Ok(requirements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_amounts_are_read_or_refused_by_name() {
        assert_eq!(wish("memory", "64GiB"), Ok(Wish::MemMib(64 << 10)));
        assert_eq!(wish("time", "2h"), Ok(Wish::Time(Millis::from_secs(7_200))));
        let rows = [
            ("colour", "red", "`colour` is no kind of wish: os, arch"),
            ("cpus", "many", "`many` is no number of CPUs"),
            ("memory", "64", "`64` is no size"),
            ("speed", "fast", "`fast` is not a factor"),
            ("time", "soon", "`soon` is no time"),
        ];
        for (kind, text, expected) in rows {
            let error = wish(kind, text).expect_err(text);
            assert!(error.starts_with(expected), "{error}");
        }
        let timed = RequireAsk {
            kind: "time".to_owned(),
            options: vec![("1h".to_owned(), 1_000_000)],
            weight: 1_000_000,
        };
        let error = wishes(std::slice::from_ref(&timed), Millis(0)).expect_err("no time");
        assert!(error.contains("say `time`"), "{error}");
        assert!(wishes(&[timed], Millis(1)).is_ok_and(|wishes| wishes.is_some()));
    }
}
