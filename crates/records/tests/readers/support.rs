//! What several of these tests need: records of a text, their charge, and how many random cases there are.

use fairmesh_model::{JobKey, WallTime};
use fairmesh_records::{BatchRecord, ChargeRule, Format, Options, Records, Zone};
use proptest::prelude::ProptestConfig;

pub(crate) fn options() -> Options {
    Options {
        cluster: "c".to_owned(),
        ..Options::default()
    }
}

pub(crate) fn read(format: Format, text: &str) -> Vec<Result<BatchRecord, String>> {
    let records = Records::new(text.as_bytes(), format, &options());
    records
        .map(|result| result.map_err(|error| error.to_string()))
        .collect()
}

/// The records of a text that has only good ones.
pub(crate) fn good(format: Format, text: &str) -> Vec<BatchRecord> {
    let good = |record: Result<_, String>| record.unwrap_or_else(|error| panic!("{error}"));
    read(format, text).into_iter().map(good).collect()
}

/// Key, user, account, start, end, CPUs and GPUs.
pub(crate) type Charge = (
    JobKey,
    Option<String>,
    Option<String>,
    WallTime,
    WallTime,
    u32,
    u32,
);

/// What the only record of a text is charged for, and its memory in MiB.
pub(crate) fn charge(format: Format, text: &[u8]) -> Result<(Charge, u64), String> {
    let options = Options {
        zone: Zone::utc(),
        ..options()
    };
    let records: Result<Vec<_>, _> = Records::new(text, format, &options).collect();
    let records = records.map_err(|error| error.to_string())?;
    let [record] = &records[..] else {
        return Err(format!("{} records", records.len()));
    };
    let usage = ChargeRule::default().usage(record, WallTime(1_800_000_000_000));
    let usage = usage.map_err(|skip| skip.to_string())?;
    let (user, account) = (usage.origin.user, usage.origin.account);
    let charge = (
        usage.key,
        user,
        account,
        usage.start,
        usage.end,
        usage.cores,
        usage.gpus,
    );
    Ok((charge, usage.mem_mib))
}

/// So many random cases; what fails is written nowhere.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
