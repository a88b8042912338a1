//! Words of others, as they are told.
//!
//! Invariant: they go through [`clean`] before they reach a terminal or a log.

use fairmesh_model::clean;

/// Each of them, fit to be told.
pub(super) fn all_clean(words: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    let words = words.into_iter();
    words.map(|word| clean(word.as_ref())).collect()
}

/// Why a line is no JSON record. That it is line 1 of itself would only confuse.
pub(super) fn not_a_record(error: &serde_json::Error) -> String {
    let why = error.to_string();
    let why = why.split(" at line ").next().unwrap_or(&why);
    match error.is_data() {
        true => why.to_owned(),
        false => format!("not JSON: {why} at column {}", error.column()),
    }
}
