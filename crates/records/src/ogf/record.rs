//! One usage record, its elements by their path.
//!
//! Invariant: a field is taken from its own place only (`UserIdentity/LocalUserId`), and the first
//! of several wins. The blocks of version 2.0 (GFD.204) are read as the elements of version 1 that hold the same, and a
//! record of several ComputeUsageBlocks is refused, as it has several starts and ends. Durations are ISO 8601 without months and
//! years, whose lengths vary.

use fairmesh_model::{JobKey, Millis, WallTime};
use jiff::{Span, SpanRelativeTo};
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use crate::error::{Reason, quoted};
use crate::fields;
use crate::format::Format;
use crate::parser::Options;
use crate::record::BatchRecord;
use crate::state::JobState;
use crate::value;
use crate::zone::Zone;

/// How deep elements may lie in each other; a record's own are three deep.
const DEPTH_MAX: usize = 32;

/// An element: its path without prefixes, its attributes likewise, its text.
#[derive(Debug, Default)]
struct Element {
    path: String,
    attributes: Vec<(String, String)>,
    text: String,
}

pub(super) fn parse(text: &str, options: &Options) -> Result<BatchRecord, Reason> {
    let elements = elements(text)?;
    let find = |path: &str| {
        let found = elements.iter().find(|element| element.path == path);
        found
            .map(|element| element.text.trim())
            .filter(|text| !text.is_empty())
    };
    let name = |path: &str| find(path).map(str::to_owned);
    let identity = elements
        .iter()
        .find(|element| element.path == "RecordIdentity");
    let record_id = identity.and_then(|element| element.attribute("recordId"));
    let job = find("JobIdentity/LocalJobId")
        .or(find("JobIdentity/GlobalJobId"))
        .or(record_id)
        .or(find("RecordIdentityBlock/RecordId"));
    let parts = |element: &&Element| element.path == "ComputeUsageBlock";
    if elements.iter().filter(parts).count() > 1 {
        return Err(Reason::Shape("several ComputeUsageBlock".to_owned()));
    }
    let label = job.ok_or_else(|| Reason::missing("JobIdentity"))?;
    let (job, submit) = fields::condor_job(label);
    let key = JobKey {
        cluster: find("MachineName").unwrap_or(&options.cluster).to_owned(),
        job: job.to_owned(),
        instance: submit.map_or(0, |submit| submit.0 / 1_000),
    };
    let state = find("Status").map_or(Ok(JobState::Completed), status)?;
    let mut record = BatchRecord::new(Format::OgfUsageRecord, key, state);
    fields::set_label(&mut record, label.to_owned());
    record.start = moment("StartTime", find("StartTime"))?;
    record.end = moment("EndTime", find("EndTime"))?;
    record.submit = record.if_read(moment("SubmitTime", find("SubmitTime")));
    record.submit = record.submit.or(submit);
    if record.end.is_none() && state.has_ended() {
        return Err(Reason::missing("EndTime"));
    }
    record.wall = find("WallDuration")
        .map(|text| duration("WallDuration", text))
        .transpose()?;
    record.cpu_time = record.if_read(cpu_time(&elements));
    record.grid_job = name("JobIdentity/GlobalJobId");
    record.name = name("JobName");
    record.origin.user = name("UserIdentity/LocalUserId");
    record.origin.group = name("UserIdentity/LocalGroup")
        .or(name("UserIdentity/LocalGroupId"))
        .or(name("UserIdentity/Group"));
    record.origin.subject =
        name("UserIdentity/GlobalUserName").or(name("UserIdentity/GlobalUserId"));
    record.fqans = fqans(&elements, find("UserIdentity/Group"));
    record.origin.account = name("ProjectName");
    record.queue = name("Queue");
    record.hosts = name("Host");
    record.cpus = fields::count("Processors", find("Processors").unwrap_or_default())?;
    let nodes = fields::count("NodeCount", find("NodeCount").unwrap_or_default());
    record.nodes = record.if_read(nodes);
    record.memory_peak_bytes = record.if_read(memory(&elements, |kind| !is_virtual(kind)));
    let virtual_peak = memory(&elements, |kind| kind == Some("virtual"));
    record.virtual_peak_bytes = record.if_read(virtual_peak);
    record.checked()
}

impl Element {
    fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Groups and roles within a virtual organisation: those that stand there whole, then each role in the group.
fn fqans(elements: &[Element], group: Option<&str>) -> Vec<String> {
    let of_kind = |wanted: &'static str| {
        elements.iter().filter_map(move |element| {
            let kind = element.attribute("type")?;
            let is_one = element.path == "UserIdentity/GroupAttribute"
                && kind.eq_ignore_ascii_case(wanted)
                && !element.text.trim().is_empty();
            is_one.then(|| element.text.trim())
        })
    };
    let whole = of_kind("FQAN").map(str::to_owned);
    let roles = group.into_iter().flat_map(|group| {
        let group = group.trim_start_matches('/');
        of_kind("role").map(move |role| format!("/{group}/Role={role}"))
    });
    whole.chain(roles).collect()
}

/// The words of GFD.98, section 4.3.
fn status(text: &str) -> Result<JobState, Reason> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "completed" => JobState::Completed,
        "failed" => JobState::Failed,
        "aborted" => JobState::Cancelled,
        "started" => JobState::Running,
        "suspended" => JobState::Suspended,
        "held" | "queued" => JobState::Pending,
        // ARC and others write an exit code.
        code => match code.parse() {
            Ok(code) => JobState::of_exit(code),
            Err(_) => return Err(Reason::UnknownState(quoted(text))),
        },
    })
}

fn moment(field: &str, text: Option<&str>) -> Result<Option<WallTime>, Reason> {
    let Some(text) = text else { return Ok(None) };
    let moment = Zone::utc().parse(text, None);
    moment
        .map(Some)
        .ok_or_else(|| Reason::field(field, text, "a time"))
}

fn duration(field: &str, text: &str) -> Result<Millis, Reason> {
    let wrong = || Reason::field(field, text, "an ISO 8601 duration");
    // Some write a number of seconds.
    if let Ok(seconds) = text.parse() {
        return Ok(Millis::from_secs(seconds));
    }
    let span: Span = text.parse().map_err(|_| wrong())?;
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours());
    let millis = length.map_err(|_| wrong())?.as_millis();
    u64::try_from(millis).map(Millis).map_err(|_| wrong())
}

/// User and system time where they are told apart, else the one that is given.
fn cpu_time(elements: &[Element]) -> Result<Option<Millis>, Reason> {
    let all = elements
        .iter()
        .filter(|element| element.path == "CpuDuration");
    let (mut parts, mut whole) = (None, None);
    for element in all {
        let length = duration("CpuDuration", element.text.trim())?;
        match element.attribute("usageType") {
            Some("user" | "system") => {
                let sum: Millis = parts.unwrap_or_default();
                parts = Some(Millis(sum.0.saturating_add(length.0)));
            }
            _ => whole = whole.or(Some(length)),
        }
    }
    Ok(whole.or(parts))
}

fn is_virtual(kind: Option<&str>) -> bool {
    matches!(kind, Some("virtual" | "swap"))
}

/// The most memory of any element of a kind; in bytes unless it has a unit.
fn memory(
    elements: &[Element],
    is_wanted: impl Fn(Option<&str>) -> bool,
) -> Result<Option<u64>, Reason> {
    let mut most = None;
    for element in elements.iter().filter(|element| element.path == "Memory") {
        if !is_wanted(element.attribute("type")) {
            continue;
        }
        let unit = element.attribute("storageUnit").unwrap_or("B");
        let text = format!("{}{}", element.text.trim(), unit);
        let bytes = value::bytes(&text, 1);
        let bytes = bytes.ok_or_else(|| Reason::field("Memory", &text, "an amount"))?;
        most = most.max(Some(bytes));
    }
    Ok(most)
}

/// The elements below the record, in their order.
fn elements(text: &str) -> Result<Vec<Element>, Reason> {
    let shape = |what: &dyn std::fmt::Display| Reason::Shape(format!("not XML: {what}"));
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Element> = Vec::new();
    let mut done = Vec::new();
    loop {
        match reader.read_event().map_err(|error| shape(&error))? {
            Event::Start(tag) if open.len() < DEPTH_MAX => open.push(element(&tag, &open)?),
            Event::Start(_) => return Err(shape(&"elements lie too deep in each other")),
            Event::Empty(tag) => done.push(element(&tag, &open)?),
            Event::End(_) => {
                let element = open.pop().ok_or_else(|| shape(&"a tag too many"))?;
                done.push(element);
            }
            Event::Text(part) => add(&mut open, &part),
            Event::CData(part) => add(&mut open, &part),
            Event::GeneralRef(reference) => {
                let number = reference
                    .resolve_char_ref()
                    .map_err(|error| shape(&error))?;
                if let Some(character) = number {
                    add(&mut open, character.encode_utf8(&mut [0; 4]));
                } else {
                    let known = resolve_xml_entity(&reference);
                    add(&mut open, known.ok_or_else(|| shape(&"an unknown entity"))?);
                }
            }
            Event::Eof if open.is_empty() => return Ok(done),
            Event::Eof => return Err(shape(&"an element is never closed")),
            _ => {}
        }
    }
}

fn add(open: &mut [Element], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

/// The record itself has an empty path, its children's paths are their names.
fn element(tag: &BytesStart<'_>, open: &[Element]) -> Result<Element, Reason> {
    let name = tag.local_name().as_ref().to_owned();
    let path = match open {
        [] => String::new(),
        [_] => name,
        [.., parent] => match (parent.path.as_str(), name.as_str()) {
            ("SubjectIdentityBlock", _) => format!("UserIdentity/{name}"),
            ("JobUsageBlock", "LocalJobId" | "GlobalJobId") => format!("JobIdentity/{name}"),
            ("JobUsageBlock" | "ComputeUsageBlock", _) => name,
            (path, _) => format!("{path}/{name}"),
        },
    };
    let mut attributes = Vec::new();
    for attribute in tag.attributes() {
        let wrong = || Reason::Shape("not XML: a bad attribute".to_owned());
        let attribute = attribute.map_err(|_| wrong())?;
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(|_| wrong())?;
        let key = attribute.key.local_name().as_ref().to_owned();
        attributes.push((key, value.into_owned()));
    }
    Ok(Element {
        path,
        attributes,
        text: String::new(),
    })
}
