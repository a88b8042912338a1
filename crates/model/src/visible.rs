//! Which characters may stand in names: those that are seen, where they stand; and words of others, made safe to
//! print.
//!
//! Who signs a document reads its names. Characters that turn the direction of text, end a line or take no room
//! make a name look like another one. (Boucher and Anderson, "Trojan Source: Invisible Vulnerabilities", USENIX
//! Security 2023, section 3.)

/// Whether a character shows something, and nothing but itself: no control character, none of Unicode's
/// bidirectional controls (UAX #9), separators of lines, or characters without width.
pub fn is_visible(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let is_hidden = matches!(
        c,
        '\u{ad}' // soft hyphen
            | '\u{61c}' // Arabic letter mark
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}' // without width, and marks of direction
            | '\u{2028}'..='\u{202e}' // separators, embeddings and overrides
            | '\u{2060}'..='\u{206f}' // joiners, isolates
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}' // tags
    );
    !is_hidden && !c.is_control()
}

/// Whether a character shows nothing, or something else: those that are not visible, and joiners, fillers and selectors of
/// forms, by which two names that differ look alike. Names that are stored and signed may have these, so they stay names;
/// who signs one is shown them as numbers.
pub fn hides(c: char) -> bool {
    let is_blank = matches!(
        c,
        '\u{34f}' // combining grapheme joiner
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' // Hangul fillers
            | '\u{17b4}' | '\u{17b5}' // Khmer vowels without a form
            | '\u{180b}'..='\u{180f}' // Mongolian selectors
            | '\u{fe00}'..='\u{fe0f}' // selectors of forms
            | '\u{e0100}'..='\u{e01ef}'
    );
    is_blank || !is_visible(c)
}

/// Longest text of others that is passed on: some lines of a terminal.
const TEXT_CHARS_MAX: usize = 400;

/// `text` on one line, without characters that do something instead of showing something.
pub fn clean(text: &str) -> String {
    let visible = |c| match c {
        '\n' | '\t' => ' ',
        c if is_visible(c) => c,
        _ => '\u{fffd}',
    };
    let mut shown: String = text.chars().take(TEXT_CHARS_MAX).map(visible).collect();
    if text.chars().nth(TEXT_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
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

    #[test]
    fn what_hides_or_turns_is_not_visible() {
        assert!("Ångström-物理_é.:|".chars().all(is_visible));
        let hidden = "\0\n\u{7f}\u{9b}\u{ad}\u{61c}\u{200b}\u{200d}\u{200f}\u{2028}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0041}";
        assert!(!hidden.chars().any(is_visible));
        assert!(hidden.chars().all(hides));
        let blank =
            "\u{34f}\u{3164}\u{115f}\u{ffa0}\u{fe00}\u{fe0f}\u{e0100}\u{e01ef}\u{180b}\u{17b4}";
        assert!(blank.chars().all(|c| hides(c) && is_visible(c)));
        assert!(!"Ångström-物理_é.:|가".chars().any(hides));
    }
}
