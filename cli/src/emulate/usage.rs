//! Charges from a CSV file.
//!
//! Invariant: the header is `path,charge`, every charge is a whole number that is kept exactly, and
//! lines with one path add up. An error names the file, the line and what to do.
//! Deliberately not here: which paths the tree has (`engine`).

use std::collections::BTreeMap;

use fairmesh_model::AccountPath;

/// Largest charge of one path: what one entry books exactly (a 64-bit amount of each of the two
/// weights that `engine` uses). 2^96 core-ms are 2.5 × 10^18 core-years.
pub const CHARGE_MAX: u128 = (1 << 96) - 1;

/// Largest sum of all charges: keeps every fraction that is printed within 256 bits.
pub const SUM_MAX: u128 = (1 << 120) - 1;

/// The columns of the file.
const HEADER: &str = "path,charge";

/// Charges by path, and where each first stood.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Charges {
    pub(super) file: String,
    pub(crate) charges: BTreeMap<AccountPath, Charge>,
}

/// The sum of one path's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) amount: u128,
    pub(super) line: u64,
}

/// Why a file of charges was refused. Its author is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct UsageError {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// What is wrong and what to do.
    pub problem: String,
}

impl Charges {
    /// Reads CSV text. `file_name` is for error messages.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, UsageError> {
        let mut charges: BTreeMap<AccountPath, Charge> = BTreeMap::new();
        let mut sum = 0u128;
        read_csv(text, file_name, HEADER, |line, record| {
            let path = AccountPath::parse(&record[0]).map_err(|bad| bad.to_string())?;
            let amount = parse_charge(&record[1]).map_err(|bad| format!("`{path}`: {bad}"))?;
            let charge = charges
                .entry(path.clone())
                .or_insert(Charge { amount: 0, line });
            charge.amount = charge.amount.saturating_add(amount);
            sum = sum.saturating_add(amount);
            match charge.amount > CHARGE_MAX || sum > SUM_MAX {
                true => Err(format!("`{path}`: {}", too_much())),
                false => Ok(()),
            }
        })?;
        Ok(Self {
            file: file_name.to_owned(),
            charges,
        })
    }
}

fn parse_charge(text: &str) -> Result<u128, String> {
    let is_whole = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_whole {
        return Err(format!(
            "`{text}` is no charge: write a whole number from 0, such as 3600000 (core-ms)"
        ));
    }
    text.parse()
        .ok()
        .filter(|charge| *charge <= CHARGE_MAX)
        .ok_or_else(too_much)
}

fn too_much() -> String {
    format!(
        "charges of more than {CHARGE_MAX} for one path or {SUM_MAX} in all cannot be counted \
         exactly: use a larger unit"
    )
}

/// Reads CSV text with the columns of `header`. `take` gets each line's number and fields, and says what is wrong
/// there.
pub(super) fn read_csv(
    text: &str,
    file_name: &str,
    header: &str,
    mut take: impl FnMut(u64, &csv::StringRecord) -> Result<(), String>,
) -> Result<(), UsageError> {
    let error = |line: u64, problem: String| UsageError {
        file: file_name.to_owned(),
        line,
        problem,
    };
    let broken = |csv: csv::Error| {
        let problem = match csv.kind() {
            csv::ErrorKind::UnequalLengths { len, .. } => {
                let wanted = header.split(',').count();
                format!("{len} fields instead of the {wanted} of `{header}`")
            }
            _ => csv.to_string(),
        };
        error(csv.position().map_or(1, csv::Position::line), problem)
    };
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(text.strip_prefix('\u{feff}').unwrap_or(text).as_bytes());
    if (reader.headers().map_err(broken)?.iter()).ne(header.split(',')) {
        let problem = format!("the first line must be the header `{header}`");
        return Err(error(1, problem));
    }
    for record in reader.records() {
        let record = record.map_err(broken)?;
        let line = record.position().map_or(0, csv::Position::line);
        take(line, &record).map_err(|problem| error(line, problem))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        Charges::parse(text, "u.csv").expect_err(text).to_string()
    }

    #[test]
    fn lines_of_one_path_add_up() {
        let text = "\u{feff}path,charge\r\n/a, 1\n\"/b\",123456789012345678901\n\n/a,2\n";
        let charges = Charges::parse(text, "u.csv").expect("valid").charges;
        let amounts: Vec<_> = charges
            .iter()
            .map(|(path, charge)| (path.as_str(), charge.amount))
            .collect();
        assert_eq!(amounts, [("/a", 3), ("/b", 123_456_789_012_345_678_901)]);
    }

    #[test]
    fn what_is_no_charge_is_refused_with_its_line() {
        for (line, at) in [
            ("/a,1.5", "u.csv:3: `/a`: `1.5` is no charge"),
            ("/a,-1", "u.csv:3: `/a`: `-1` is no charge"),
            ("/a,1e3", "u.csv:3: `/a`: `1e3` is no charge"),
            ("/a,", "u.csv:3: `/a`: `` is no charge"),
            (
                "/a,99999999999999999999999999999999999999999",
                "u.csv:3: `/a`: charges of more",
            ),
            (
                "/a,79228162514264337593543950336",
                "u.csv:3: `/a`: charges of more",
            ),
            ("/a", "u.csv:3: 1 fields"),
            ("/a,1,2", "u.csv:3: 3 fields"),
            ("a,1", "u.csv:3: account path `a`"),
        ] {
            let problem = problem(&format!("path,charge\n/x,1\n{line}\n"));
            assert!(problem.starts_with(at), "{problem}");
        }
        for text in ["", "charge,path\n", "/a,1\n", "path,charge,unit\n"] {
            assert!(problem(text).contains("`path,charge`"), "{text}");
        }
    }
}
