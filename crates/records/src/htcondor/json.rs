//! Ads as JSON: one array of them, or one on each line, laid out in any way.

use super::ad::{self, Ad};
use crate::error::Reason;
use crate::format::Format;
use crate::objects::{Object, ObjectFormat};
use crate::parser::{Ignored, Options};
use crate::record::BatchRecord;

pub(crate) struct AdObject(pub(crate) Options);

impl ObjectFormat for AdObject {
    const AROUND: &'static [&'static str] = &[];

    fn is_read(&self, key: &str) -> bool {
        ad::is_read(&key.to_ascii_lowercase())
    }

    fn record(&self, object: &Object<'_>) -> Result<Result<BatchRecord, Ignored>, Reason> {
        let pair = |name: &String| Some((name.to_ascii_lowercase(), object.text(name)?));
        let ad: Ad = object.0.keys().filter_map(pair).collect();
        ad::record(&ad, Format::HtcondorJson, &self.0).map(Ok)
    }
}
