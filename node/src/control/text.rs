//! Words of others, made safe to print.
//!
//! Invariant: what comes out has no control characters (so no escape sequences for terminals), no
//! marks that turn the direction of text, and at most [`TEXT_CHARS_MAX`] characters.

use fairmesh_model::is_visible;

/// Longest text of a peer or a client that is passed on: some lines of a terminal.
const TEXT_CHARS_MAX: usize = 400;

/// `text` on one line, without characters that do something instead of showing something.
pub fn clean(text: &str) -> String {
    let mut shown: String = text.chars().take(TEXT_CHARS_MAX).map(visible).collect();
    if text.chars().nth(TEXT_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

fn visible(c: char) -> char {
    match c {
        '\n' | '\t' => ' ',
        c if is_visible(c) => c,
        _ => '\u{fffd}',
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_that_is_not_text() {
        assert_eq!(
            clean("a\x1b[2Jb\nc\u{9b}d\u{202e}e"),
            "a\u{fffd}[2Jb c\u{fffd}d\u{fffd}e"
        );
        assert_eq!(clean(&"é".repeat(500)).chars().count(), TEXT_CHARS_MAX + 1);
    }
}
