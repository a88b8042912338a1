//! What Slurm's own words are taken for.

use super::*;

#[test]
fn complaints_name_their_job() {
    for (line, job, why) in [
        (
            "Invalid job id specified for job 99999",
            "99999",
            "Invalid job id specified",
        ),
        (
            "Access/permission denied for job 4_[1-5]",
            "4_[1-5]",
            "Access/permission denied",
        ),
        (
            "4_1-5: Job has already finished",
            "4_1-5",
            "Job has already finished",
        ),
    ] {
        assert_eq!(blamed(line), Some((job, why)), "{line}");
    }
    assert_eq!(blamed("Unable to contact slurm controller"), None);
}
