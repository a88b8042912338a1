//! The message for a user whose job does not run: what is left here and elsewhere, what the job needs, and when the
//! next slice begins.

use std::fmt::Write;

use fairmesh_model::{AccountPath, CoreMillis, Millis};

/// Core-milliseconds in a tenth of a core-hour, the precision of messages.
const TENTH_MS: u64 = 360_000;

/// The content of the message; amounts in core-milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortage<'a> {
    pub(crate) account: &'a AccountPath,
    /// Spendable at this site.
    pub(crate) here: u128,
    /// Spendable at all sites together and in transit, as far as is known.
    pub(crate) in_vo: u128,
    pub(crate) on_the_way: u128,
    pub(crate) needs: CoreMillis,
    /// The amount of the next slice, and in how long it begins; `None` if there is none.
    pub(crate) next: Option<(CoreMillis, Millis)>,
}

impl Shortage<'_> {
    pub(crate) fn text(&self) -> String {
        let name = self.account.as_str().trim_start_matches('/').escape_debug();
        let name = if self.account.is_root() {
            "/".to_owned()
        } else {
            name.to_string()
        };
        let mut text = format!(
            "{name}: {} core-hours left here, {} in the VO ({} on the way); this job needs {}",
            tenths(self.here / u128::from(TENTH_MS)),
            tenths(self.in_vo / u128::from(TENTH_MS)),
            tenths(self.on_the_way / u128::from(TENTH_MS)),
            // Rounded up, while the rest is rounded down: no message shows a job that needs less than is left.
            tenths(u128::from(self.needs.0.div_ceil(TENTH_MS))),
        );
        if self.in_vo >= u128::from(self.needs.0) {
            text += "; the rest is at other sites: try again in a minute";
        } else if let Some((amount, begins)) = self.next {
            let (amount, begins) = (core_hours(amount), length_of_time(begins));
            write!(text, "; next slice ({amount}) in {begins}").expect("a text takes it");
        }
        text + ": fairmesh quota show " + &name
    }
}

/// An amount in core-hours, with one decimal, rounded down.
pub fn core_hours(amount: CoreMillis) -> String {
    tenths(u128::from(amount.0 / TENTH_MS))
}

/// A length of time in its largest unit of which there is one, rounded up: `3 days`, `1 hour`.
pub fn length_of_time(length: Millis) -> String {
    let units = [
        ("day", 86_400_000),
        ("hour", 3_600_000),
        ("minute", 60_000),
        ("second", 1_000),
    ];
    let fits = units.into_iter().find(|(_, unit)| length.0 >= *unit);
    let (name, unit) = fits.unwrap_or(("second", 1_000));
    match length.0.div_ceil(unit) {
        1 => format!("1 {name}"),
        count => format!("{count} {name}s"),
    }
}

fn tenths(tenths: u128) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn a_user_reads_what_is_left_and_what_comes() {
        let account = AccountPath::parse("/P-A1").expect("valid");
        let mut shortage = Shortage {
            account: &account,
            here: 12 * u128::from(HOUR) + 359_999,
            in_vo: 300 * u128::from(HOUR),
            on_the_way: 40 * u128::from(HOUR),
            needs: CoreMillis(396 * HOUR),
            next: Some((CoreMillis(500 * HOUR), Millis(3 * 24 * HOUR))),
        };
        assert_eq!(
            shortage.text(),
            "P-A1: 12.0 core-hours left here, 300.0 in the VO (40.0 on the way); this job needs 396.0; \
             next slice (500.0) in 3 days: fairmesh quota show P-A1"
        );
        (shortage.needs, shortage.next) = (CoreMillis(301 * HOUR), None);
        let text = shortage.text();
        assert!(text.ends_with("this job needs 301.0: fairmesh quota show P-A1"));
        shortage.needs = CoreMillis(1);
        let text = shortage.text();
        let what_to_do = "this job needs 0.1; the rest is at other sites: try again in a minute: fairmesh quota show P-A1";
        assert!(text.ends_with(what_to_do), "{text}");
    }

    #[test]
    fn lengths_of_time_have_one_unit() {
        for (length, text) in [
            (0, "0 seconds"),
            (1, "1 second"),
            (61_000, "2 minutes"),
            (HOUR, "1 hour"),
            (49 * HOUR, "3 days"),
        ] {
            assert_eq!(length_of_time(Millis(length)), text);
        }
    }
}
