//! Every decoder of bytes that come from outside, by name: what the fuzz targets and the property
//! tests both throw bytes at.
//!
//! Invariant: a decoder takes any bytes without a panic and without growing beyond its named limit.
//! Whoever adds a decoder adds it here; `every_decoder_has_a_fuzz_target` sees to the other half.

use fairmesh_gossip::wire::{Push, Request, Response};
use fairmesh_gossip::{Head, PartKey};
use fairmesh_model::{
    AccountPath, Allocation, Charter, Document, RunningJob, Share, SharePolicy, Signed,
    UsageRecord, WallTime, Weight, cbor,
};
use fairmesh_records::export::{self, Summaries};
use fairmesh_records::{BatchRecord, ChargeRule, Format, GridIdentities, Options, Reason, Records};
use fairmesh_site::Offer;

/// A decoder: takes bytes, says whether it liked them.
pub type Decoder = fn(&[u8]) -> bool;

/// All decoders.
pub const DECODERS: [(&str, Decoder); 57] = [
    ("cbor", |bytes| cbor::check(bytes, 1 << 20).is_ok()),
    ("charter", |bytes| signed::<Charter>(bytes)),
    ("share_policy", |bytes| signed::<SharePolicy>(bytes)),
    ("allocation", |bytes| signed::<Allocation>(bytes)),
    ("rights_row", |bytes| {
        fairmesh_quota::Row::from_bytes(bytes).is_ok_and(|row| !row.is_empty())
    }),
    ("rights_want", |bytes| {
        fairmesh_site::read_want(bytes).is_some()
    }),
    ("rights_given", |bytes| {
        fairmesh_site::read_given(bytes).is_some()
    }),
    ("forward_offer", |bytes| signed::<Offer>(bytes)),
    ("forward_message", |bytes| {
        fairmesh_site::read_forward(bytes).is_some()
    }),
    ("forward_told", |bytes| {
        fairmesh_site::read_forward_reply(bytes).is_some()
    }),
    ("head", |bytes| signed::<Head>(bytes)),
    ("usage_table", |bytes| fairmesh_usage::check(bytes).is_ok()),
    ("part_name", |bytes| {
        let name = PartKey::from_bytes(bytes);
        name.is_some_and(|name| fairmesh_usage::Slice::from_bytes(name.key()).is_some())
    }),
    ("description", |bytes| {
        fairmesh_site::Description::from_bytes(bytes).is_some()
    }),
    ("advert", |bytes| fairmesh_site::read_advert(bytes).is_ok()),
    ("sla", broker::sla),
    ("queue_journal", broker::queue_journal),
    ("place_grid", broker::place_grid),
    ("place_ask", broker::place_ask),
    ("gossip_push", |bytes| Push::from_bytes(bytes).is_ok()),
    ("gossip_delta", heads::delta),
    ("gossip_request", |bytes| Request::from_bytes(bytes).is_ok()),
    ("gossip_response", |bytes| {
        Response::from_bytes(bytes).is_ok()
    }),
    ("gossip_packed_response", |packed| {
        Response::from_bytes(&[&[1], packed].concat()).is_ok()
    }),
    ("lookup_request", |bytes| {
        fairmesh_client::protocol::decode_request(bytes).is_ok()
    }),
    ("lookup_reply", |bytes| {
        fairmesh_client::protocol::decode_reply(bytes).is_ok()
    }),
    ("usage_record", |bytes| {
        serde_json::from_slice::<UsageRecord>(bytes).is_ok_and(|record| record.validate().is_ok())
    }),
    ("running_job", |bytes| {
        serde_json::from_slice::<RunningJob>(bytes).is_ok()
    }),
    ("slurm_report", |bytes| {
        serde_json::from_slice::<fairmesh_api::loops::LoopsReport>(bytes).is_ok()
    }),
    ("share_tree", |bytes| {
        std::str::from_utf8(bytes)
            .is_ok_and(|text| fairmesh_policy::parse_tree(text, "fuzz.toml").is_ok())
    }),
    ("node_config", |bytes| {
        std::str::from_utf8(bytes).is_ok_and(node_config)
    }),
    ("account_path", |bytes| {
        std::str::from_utf8(bytes).is_ok_and(|text| {
            AccountPath::parse(text).is_ok()
                | Share::parse_percent(text).is_ok()
                | Weight::parse(text).is_ok()
        })
    }),
    ("swf", |bytes| {
        fairmesh_cluster::SwfReader::new(bytes)
            .take(1_000)
            .all(|record| record.is_ok())
    }),
    ("charging_config", |bytes| {
        std::str::from_utf8(bytes)
            .is_ok_and(|text| node_config(&format!("[site]\nname = \"fuzz\"\n{text}")))
    }),
    ("records_blah", |bytes| {
        let mut kept = GridIdentities::default();
        kept.read(bytes).is_empty() && !kept.is_empty()
    }),
    ("apel_summary", |bytes| {
        std::str::from_utf8(bytes)
            .is_ok_and(|text| Summaries::parse(text).is_ok_and(|read| read.rows().count() > 0))
    }),
    ("records_slurm_sacct", |bytes| {
        records(bytes, Format::SlurmSacct)
    }),
    ("records_slurm_jobcomp", |bytes| {
        records(bytes, Format::SlurmJobcomp)
    }),
    ("records_slurm_script", |bytes| {
        records(bytes, Format::SlurmScript)
    }),
    ("records_slurm_squeue", |bytes| {
        records(bytes, Format::SlurmSqueue)
    }),
    ("records_slurm_scontrol", |bytes| {
        records(bytes, Format::SlurmScontrol)
    }),
    ("records_pbs", |bytes| records(bytes, Format::Pbs)),
    ("records_grid_engine", |bytes| {
        records(bytes, Format::GridEngine)
    }),
    ("records_json", |bytes| records(bytes, Format::Json)),
    ("records_lsf", |bytes| records(bytes, Format::Lsf)),
    ("records_htcondor_json", |bytes| {
        records(bytes, Format::HtcondorJson)
    }),
    ("records_htcondor_ads", |bytes| {
        records(bytes, Format::HtcondorAds)
    }),
    ("records_htcondor_fields", |bytes| {
        records(bytes, Format::HtcondorFields)
    }),
    ("records_ogf_usage_record", |bytes| {
        records(bytes, Format::OgfUsageRecord)
    }),
    ("records_apel_job", |bytes| records(bytes, Format::ApelJob)),
    ("records_slurm_sacct_json", |bytes| {
        records(bytes, Format::SlurmSacctJson)
    }),
    ("records_slurm_jobcomp_json", |bytes| {
        records(bytes, Format::SlurmJobcompJson)
    }),
    ("records_htcondor_xml", |bytes| {
        records(bytes, Format::HtcondorXml)
    }),
    ("records_auditor", |bytes| records(bytes, Format::Auditor)),
    ("records_flux", |bytes| records(bytes, Format::Flux)),
    ("records_cluster_cockpit", |bytes| {
        records(bytes, Format::ClusterCockpit)
    }),
    ("records_slurm_sacct_delimiter", |bytes| {
        let options = Options {
            delimiter: Some("^|^".to_owned()),
            ..options()
        };
        records_with(bytes, Format::SlurmSacct, &options)
    }),
];

/// Runs the decoder of that name.
///
/// # Panics
/// If there is none: a fuzz target was renamed and the table was not.
pub fn decode(name: &str, bytes: &[u8]) -> bool {
    let (_, decoder) = DECODERS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a decoder of that name");
    decoder(bytes)
}

fn signed<T: Document>(bytes: &[u8]) -> bool {
    let Ok(signed) = Signed::<T>::parse(bytes) else {
        return false;
    };
    let keys = signed.signers().collect();
    signed.count_valid(&keys) > 0
}

fn options() -> Options {
    Options {
        cluster: "fuzz".to_owned(),
        ..Options::default()
    }
}

fn records(bytes: &[u8], format: Format) -> bool {
    records_with(bytes, format, &options())
}

/// Reads records of a format; what was read is charged, written out and read back, which must not panic
/// either. Likes bytes that hold records and nothing wrong.
///
/// # Panics
/// If a record is lost on its way through JSON or where reading goes on from a cursor, or nothing is kept
/// of one that is refused.
fn records_with(bytes: &[u8], format: Format, options: &Options) -> bool {
    let rule = ChargeRule::default();
    let (mut good, mut bad) = (Vec::new(), 0);
    let mut reader = Records::new(bytes, format, options);
    while let Some(result) = reader.next() {
        let record = match result {
            Ok(record) => record,
            Err(error) => {
                let is_gone = matches!(error.reason, Reason::TooLong);
                assert!(is_gone || !reader.rejected().is_empty(), "{error}");
                bad += 1;
                continue;
            }
        };
        let _ = rule.usage(&record, WallTime(u64::MAX / 2));
        let _ = export::usage_record(&record, WallTime(0));
        let _ = Summaries::default().add(&record);
        let json = serde_json::to_vec(&record).expect("a record has no maps");
        let back: BatchRecord = serde_json::from_slice(&json).expect("its own JSON");
        // What could not be read is told by the reader, and kept nowhere.
        let kept = BatchRecord {
            unread: Vec::new(),
            ..record.clone()
        };
        assert_eq!(back, kept);
        good.push(record);
    }
    let half = good.len() / 2;
    let mut reader = Records::new(bytes, format, options);
    let mut resumed: Vec<BatchRecord> = reader.by_ref().flatten().take(half).collect();
    let cursor = reader.cursor().clone();
    let rest = usize::try_from(cursor.bytes).ok();
    let rest = rest.and_then(|at| bytes.get(at..)).expect("within");
    resumed.extend(Records::resume(rest, format, options, cursor).flatten());
    let is_found = |record: &BatchRecord| resumed.contains(record);
    assert!(good.iter().all(is_found), "{good:?} became {resumed:?}");
    !good.is_empty() && bad == 0
}

fn node_config(text: &str) -> bool {
    let no_files = |_: &std::path::Path| Err(anyhow::anyhow!("there are no files here"));
    fairmesh_node::config::Config::parse(
        text,
        std::path::Path::new("/fuzz/fairmesh.toml"),
        &no_files,
    )
    .is_ok()
}

mod broker;
#[cfg(test)]
mod examples;
mod heads;
#[cfg(test)]
mod rights;

#[cfg(test)]
mod tests;
