//! Fairmesh's own JSON lines: what `control.sock` takes.
//!
//! Invariant: a line with a `state` is a [`BatchRecord`], any other a [`UsageRecord`]; both keep the
//! key that they name.

use fairmesh_model::UsageRecord;
use serde_json::Value;

use crate::error::Reason;
use crate::parser::{Ignored, LineFormat};
use crate::record::BatchRecord;

pub(crate) struct JsonLine;

impl LineFormat for JsonLine {
    fn record(&self, line: &str) -> Result<Result<BatchRecord, Ignored>, Reason> {
        let shape = |error: serde_json::Error| {
            // That it is line 1 of itself would only confuse.
            let why = error.to_string();
            let why = why.split(" at line ").next().unwrap_or_default();
            Reason::Shape(format!("not a record: {}", crate::error::quoted_line(why)))
        };
        let value: Value = serde_json::from_str(line).map_err(shape)?;
        if value.get("state").is_some() {
            let record: BatchRecord = serde_json::from_value(value).map_err(shape)?;
            if let (Some(start), Some(end)) = (record.start, record.end)
                && end < start
            {
                return Err(Reason::Backwards);
            }
            return Ok(Ok(record));
        }
        let usage: UsageRecord = serde_json::from_value(value).map_err(shape)?;
        usage
            .validate()
            .map_err(|error| Reason::Shape(error.to_string()))?;
        Ok(Ok(BatchRecord::of_usage(&usage)))
    }
}
