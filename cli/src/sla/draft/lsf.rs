//! Drafts from the fairshare of LSF's queues.
//!
//! `USER_SHARES` of a queue divides it among groups: a target for each, of what all of them have. Job slots that each user
//! may have (`JL/U`) have no counterpart.
//! Source: the command reference of LSF, `bqueues`.

use std::collections::BTreeMap;

use anyhow::Context as _;
use fairmesh_broker::Sla;
use fairmesh_broker::sla::SlaEntry;
use fairmesh_model::{AccountPath, clean};

use super::{Draft, target};

/// Names that stand for everybody who is not named.
const OTHERS: [&str; 2] = ["default", "others"];

/// Makes a draft of what `bqueues -l` prints of one queue, or of several that say the same.
pub(super) fn draft(text: &str, file: &str) -> anyhow::Result<Draft> {
    let mut comments = Vec::new();
    let mut found: Option<(String, BTreeMap<String, u64>)> = None;
    let mut queue = String::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let at = || format!("{file}:{}", index + 1);
        if let Some(name) = line.strip_prefix("QUEUE:") {
            queue = clean(name.trim());
        } else if line.split_whitespace().any(|word| word == "JL/U") {
            let values = lines.next().map(|(_, values)| values);
            comments.extend(slots_of(line, values.unwrap_or_default(), &queue));
        } else if let Some(shares) = line.trim_start().strip_prefix("USER_SHARES:") {
            let shares = shares_of(shares).with_context(at)?;
            match &found {
                Some((first, other)) if *other != shares => anyhow::bail!(
                    "{}: queues {first} and {queue} have other shares: give one of them",
                    at()
                ),
                _ => found = Some((queue.clone(), shares)),
            }
        }
    }
    let (_, shares) = found.with_context(|| {
        format!(
            "{file}: no `USER_SHARES`: give the output of `bqueues -l` of a queue with fairshare"
        )
    })?;
    let sum = shares
        .values()
        .fold(0, |sum: u64, of| sum.saturating_add(*of));
    let mut sla = Sla::default();
    for (name, of) in &shares {
        if OTHERS.contains(&name.as_str()) {
            comments.push(format!(
                "{name}: {of} of {sum} shares, for all who are not named"
            ));
            continue;
        }
        let entry = SlaEntry {
            cpu: Some(target(*of, sum)),
            ..SlaEntry::default()
        };
        // A group's name may end with a slash, which says that it is one.
        let path = AccountPath::root().child(name.trim_end_matches('/'));
        let path = path.with_context(|| format!("{file}: group `{}`", clean(name)))?;
        sla.entries.insert(path, entry);
    }
    Ok(Draft { sla, comments })
}

/// What `[physics, 70] [chem, 30]` says.
fn shares_of(text: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let pairs = text
        .split(']')
        .map(str::trim)
        .filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let halves = pair
            .strip_prefix('[')
            .and_then(|inner| inner.rsplit_once(','));
        let wrong = || format!("`{}` is no share", clean(pair));
        let (name, shares) = halves.with_context(wrong)?;
        Ok((
            name.trim().to_owned(),
            shares.trim().parse().with_context(wrong)?,
        ))
    };
    pairs.map(pair).collect()
}

/// The slots that each user may have, where the table says a number.
fn slots_of(names: &str, values: &str, queue: &str) -> Option<String> {
    let place = names.split_whitespace().position(|name| name == "JL/U")?;
    let slots: u64 = values.split_whitespace().nth(place)?.parse().ok()?;
    Some(format!(
        "queue {queue}: {slots} job slots at once for each user"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: &str = "
QUEUE: normal
  -- For normal low priority jobs

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV
 30    0  Open:Active       -   12    -    -    80     8    72     0     0    0

SCHEDULING POLICIES:  FAIRSHARE
USER_SHARES:  [physics/, 70] [chem, 20] [default, 10]

SHARE_INFO_FOR: normal/
 USER/GROUP   SHARES  PRIORITY  STARTED  RESERVED  CPU_TIME  RUN_TIME
physics/         70      23.333      0        0         0.0        0
";

    #[test]
    fn shares_become_targets_that_are_read_back() {
        let Draft { sla, comments } = draft(QUEUE, "f").expect("a draft");
        let text = sla.to_toml();
        assert_eq!(
            text,
            "[sla]\n\"/chem\" = { cpu = \"20%\" }\n\"/physics\" = { cpu = \"70%\" }\n"
        );
        assert_eq!(Sla::parse(&text, "draft").expect("an SLA"), sla);
        assert_eq!(
            comments,
            [
                "queue normal: 12 job slots at once for each user",
                "default: 10 of 100 shares, for all who are not named"
            ]
        );
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |text: &str| format!("{:#}", draft(text, "f").expect_err(text));
        assert!(error("QUEUE: short\n").starts_with("f: no `USER_SHARES`"));
        assert!(error("USER_SHARES: [a, many]\n").starts_with("f:1: `[a, many` is no share"));
        let other = QUEUE.replace("normal", "short").replace("70", "60");
        assert!(
            error(&(QUEUE.to_owned() + &other))
                .contains("queues normal and short have other shares")
        );
    }
}
