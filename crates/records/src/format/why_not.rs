//! Files whose format is known and not read.
//!
//! Invariant: the answer is one sentence that identifies the file and what to report in its place.
//!
//! Source: `apel/db/loader/record_factory.py` of APEL for its headers; `sacct` and `sreport` of Slurm.

/// Why a file with this beginning is not read, and what to report in its place.
pub fn why_not(beginning: &[u8]) -> Option<&'static str> {
    let beginning = &beginning[..beginning.len().min(super::DETECT_BYTES_MAX)];
    let text = String::from_utf8_lossy(beginning);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let starts = |prefix: &str| text.lines().any(|line| line.starts_with(prefix));
    if text.starts_with('{') && text.contains("\"jobs\":") && text.contains("\"job_state\":") {
        return Some(
            "this is the queue's JSON, of `squeue` or `scontrol`: report `sacct --json`, or `scontrol show jobs`",
        );
    }
    if starts("APEL-summary-job-message") || starts("APEL-normalised-summary-message") {
        return Some("these are APEL's sums of a month, which have no jobs: report single jobs");
    }
    if starts("APEL-cloud-") {
        return Some("these are APEL's records of virtual machines, which are not batch jobs");
    }
    if starts("=====") && starts("qname ") && starts("jobnumber ") {
        return Some("this is qacct's text: report the file `accounting` itself");
    }
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let ruler = lines.next().unwrap_or_default();
    let is_ruler = ruler.contains("----") && ruler.bytes().all(|byte| matches!(byte, b'-' | b' '));
    if is_ruler
        && header
            .split_whitespace()
            .any(|name| name.eq_ignore_ascii_case("jobid"))
    {
        return Some("this list of sacct has fixed widths, which cut fields: add -P to sacct");
    }
    let is_heading = |line: &str| line.starts_with("Cluster") && line.contains(" Utilization ");
    if text.lines().any(is_heading) {
        return Some("these are sreport's sums, which have no jobs: report `sacct -P`");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::why_not;
    use crate::Format;

    #[test]
    fn formats_that_are_not_read_are_named() {
        for (text, word) in [
            ("======\nqname        all.q\njobnumber    1\n", "qacct"),
            ("APEL-summary-job-message: v0.2\nSite: A\n", "APEL"),
            ("APEL-normalised-summary-message: v0.4\n", "APEL"),
            ("APEL-cloud-summary-message: v0.4\n", "virtual machines"),
            (
                "-----\nCluster/User/Account Utilization 2026-11-01T00:00:00 - 2026-11-30\n",
                "sreport",
            ),
            ("JobID  State\n------ -----\n1 COMPLETED\n", "-P"),
            (
                r#"{"jobs": [{"job_id": 1, "cluster": "c", "job_state": ["RUNNING"]}]}"#,
                "queue",
            ),
        ] {
            assert!(
                why_not(text.as_bytes()).is_some_and(|why| why.contains(word)),
                "{text}"
            );
            assert_eq!(Format::detect(text.as_bytes()), None, "{text}");
        }
        assert_eq!(why_not(b"JobID|State\n1|COMPLETED\n"), None);
    }
}
