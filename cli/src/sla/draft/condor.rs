//! Drafts from HTCondor's group quotas.
//!
//! A static quota is in CPUs, a dynamic one a part of the parent's; where a group has both the static one counts, as in
//! HTCondor. A group that accepts surplus may pass its quota where nobody else asks: a target. One that does not never
//! passes it: a limit.
//! Source: the HTCondor manual, "Group Accounting" and `GROUP_QUOTA_<groupname>`.

use std::collections::BTreeMap;

use anyhow::Context as _;
use fairmesh_broker::Sla;
use fairmesh_broker::sla::{Amount, BURST, Bound, EPOCH, Grant, Sign, SlaEntry};
use fairmesh_model::{AccountPath, Factor, Share, clean};

use super::Draft;

/// Knobs by their names in small letters: HTCondor does not tell capital ones from them. Each with its line.
type Knobs<'a> = BTreeMap<String, (usize, &'a str)>;

/// Makes a draft of what `condor_config_val -dump` prints.
pub(super) fn draft(text: &str, file: &str) -> anyhow::Result<Draft> {
    let knobs = read(text);
    let (_, names) = knobs.get("group_names").with_context(|| {
        format!("{file}: no `GROUP_NAMES`: give the output of `condor_config_val -dump GROUP_`")
    })?;
    let names = names
        .split([',', ' ', '\t'])
        .filter(|name| !name.is_empty());
    let (mut sla, mut comments) = (Sla::default(), Vec::new());
    for name in names {
        let mut parts = name.split('.');
        let path = parts.try_fold(AccountPath::root(), |path, part| path.child(part));
        let path = path.with_context(|| format!("{file}: group `{}`", clean(name)))?;
        let share = quota(&knobs, name, file)?;
        if share.is_none() {
            comments.push(format!(
                "{path}: no quota, so HTCondor gives it what is left over only"
            ));
        }
        let surplus = match flag(&knobs, &format!("group_accept_surplus_{name}"), file)? {
            Some(surplus) => surplus,
            None => flag(&knobs, "group_accept_surplus", file)?.unwrap_or(false),
        };
        let bound = |amount, interval| Bound { amount, interval };
        let cpu = share.map(|amount| Grant {
            share: Some(bound(amount, EPOCH)),
            sign: if surplus { Sign::Target } else { Sign::AtMost },
            // A quota is of what is held now.
            burst: (!surplus).then(|| bound(amount, BURST)),
        });
        let entry = SlaEntry {
            cpu,
            ..SlaEntry::default()
        };
        sla.entries.insert(path, entry);
    }
    Ok(Draft { sla, comments })
}

/// Lines `NAME = value`; the last of a name counts. All else (comments, headings of the dump) is passed over.
fn read<'a>(text: &'a str) -> Knobs<'a> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim_start().starts_with('#'));
    let knob = |(index, line): (usize, &'a str)| {
        let (name, value) = line.split_once('=')?;
        Some((name.trim().to_lowercase(), (index + 1, value.trim())))
    };
    lines.filter_map(knob).collect()
}

/// A group's quota as the pool's configuration gives it; `None` without one.
fn quota(knobs: &Knobs<'_>, name: &str, file: &str) -> anyhow::Result<Option<Amount>> {
    let knob = |prefix: &str| knobs.get(&format!("{prefix}_{name}").to_lowercase());
    let wrong = |line: usize, text: &str, what: &str| {
        let (name, text) = (clean(name), clean(text));
        anyhow::anyhow!("{file}:{line}: group `{name}`: `{text}` is no {what}")
    };
    if let Some((line, text)) = knob("group_quota") {
        // HTCondor gives whole CPUs only: what stands behind the point has no meaning.
        let whole = text.split_once('.').map_or(*text, |(whole, _)| whole);
        let cpus = whole
            .parse()
            .map_err(|_| wrong(*line, text, "number of CPUs"))?;
        return Ok(Some(Amount::Units(cpus)));
    }
    let Some((line, text)) = knob("group_quota_dynamic") else {
        return Ok(None);
    };
    let part = Factor::parse(text).ok();
    let part = part.filter(|part| part.millionths() <= Factor::UNITS);
    let part = part.ok_or_else(|| wrong(*line, text, "part of the parent's, from 0.0 to 1.0"))?;
    let (part, whole) = (part.millionths().into(), Factor::UNITS.into());
    Ok(Some(Amount::Percent(Share::from_ratio(part, whole))))
}

fn flag(knobs: &Knobs<'_>, name: &str, file: &str) -> anyhow::Result<Option<bool>> {
    let Some((line, text)) = knobs.get(&name.to_lowercase()) else {
        return Ok(None);
    };
    match text.to_lowercase().as_str() {
        "true" | "t" | "yes" | "1" => Ok(Some(true)),
        "false" | "f" | "no" | "0" => Ok(Some(false)),
        _ => anyhow::bail!("{file}:{line}: `{}` is neither true nor false", clean(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::differences;
    use super::*;

    const DUMP: &str = "# Configuration from machine: submit.example.org
GROUP_ACCEPT_SURPLUS = false
group_accept_surplus_group_chem = True
GROUP_AUTOREGROUP = false
GROUP_NAMES = group_physics, group_physics.cms, group_physics.atlas, group_chem, group_guests
GROUP_QUOTA_GROUP_PHYSICS = 600
GROUP_QUOTA_group_chem = 200.0
GROUP_QUOTA_DYNAMIC_group_chem = 0.9
GROUP_QUOTA_DYNAMIC_group_physics.atlas = 0.75
GROUP_QUOTA_DYNAMIC_group_physics.cms = 0.25
# Contributing configuration file(s):
#	/etc/condor/condor_config
";

    #[test]
    fn quotas_of_groups_become_lines_that_are_read_back() {
        let Draft { sla, comments } = draft(DUMP, "f").expect("a draft");
        let text = sla.to_toml();
        let expected = "[sla]\n\"/group_chem\" = { cpu = \"200cpus\" }\n\"/group_guests\" = {}\n\
            \"/group_physics\" = { cpu = \"600cpus+, burst 600cpus\" }\n\
            \"/group_physics/atlas\" = { cpu = \"75%+, burst 75%\" }\n\
            \"/group_physics/cms\" = { cpu = \"25%+, burst 25%\" }\n";
        assert_eq!(text, expected);
        assert_eq!(Sla::parse(&text, "draft").expect("an SLA"), sla);
        assert_eq!(
            comments,
            ["/group_guests: no quota, so HTCondor gives it what is left over only"]
        );
        let signed = Sla::parse(&text.replace("200cpus", "100cpus"), "signed").expect("an SLA");
        assert_eq!(
            differences(&signed, &sla, "HTCondor"),
            ["/group_chem: the SLA says 100cpus, and HTCondor is configured to 200cpus"]
        );
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |text: &str| draft(text, "f").expect_err(text).to_string();
        assert!(error("GROUP_QUOTA_a = 1\n").starts_with("f: no `GROUP_NAMES`"));
        assert_eq!(
            error("GROUP_NAMES = a\nGROUP_QUOTA_a = many\n"),
            "f:2: group `a`: `many` is no number of CPUs"
        );
        assert_eq!(
            error("GROUP_NAMES = a\nGROUP_QUOTA_DYNAMIC_a = 1.5\n"),
            "f:2: group `a`: `1.5` is no part of the parent's, from 0.0 to 1.0"
        );
        assert_eq!(
            error("GROUP_NAMES = a\nGROUP_ACCEPT_SURPLUS = perhaps\n"),
            "f:2: `perhaps` is neither true nor false"
        );
    }
}
