//! How many CPUs a cluster has, as its batch system counts them: by what it prints of its nodes.
//!
//! Invariant: each node counts once, and what cannot be read counts as nothing: the number is never too high.
//! Deliberately not here: asking (a [`crate::Scheduler`] does), and what a charter declares.

/// The fourth number of what `sinfo -a -h -o %C` prints: allocated, idle, other, and all CPUs.
pub(crate) fn of_sinfo(text: &str) -> Option<u64> {
    let all = |line: &str| line.trim().split('/').nth(3)?.parse().ok();
    sum(text.lines().filter_map(all))
}

/// The slots of the hosts that `qhost -q` prints, each with its queues below it: `all.q  BIP  0/0/16`. Queues of one
/// host mostly share its slots, so the largest of them counts.
pub(crate) fn of_qhost(text: &str) -> Option<u64> {
    let mut hosts: Vec<u64> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if !line.starts_with(char::is_whitespace) {
            hosts.push(0);
        } else if let Some((_, slots)) = words.nth(2).and_then(|word| word.rsplit_once('/'))
            && let (Ok(slots), Some(host)) = (slots.parse::<u64>(), hosts.last_mut())
        {
            *host = slots.max(*host);
        }
    }
    sum(hosts)
}

/// `TotalSlotCpus` of the slots that `condor_status` prints, one a line.
pub(crate) fn of_condor_status(text: &str) -> Option<u64> {
    sum(text.lines().filter_map(|line| line.trim().parse().ok()))
}

/// What the nodes of `pbsnodes -a` have: `resources_available.ncpus = 16`, or `np = 16` in TORQUE.
pub(crate) fn of_pbsnodes(text: &str) -> Option<u64> {
    let cpus = |line: &str| {
        let (key, value) = line.split_once('=')?;
        let is_count = matches!(key.trim(), "resources_available.ncpus" | "np");
        is_count.then(|| value.trim().parse().ok())?
    };
    sum(text.lines().filter_map(cpus))
}

/// The column `MAX` of what `bhosts -w` prints. A host without a limit has `-` there, and nobody knows what it may
/// run.
pub(crate) fn of_bhosts(text: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    let column = lines.next()?.position(|name| name == "MAX")?;
    let slots = lines.filter_map(|mut words| words.nth(column));
    let slots = slots.map(|max| max.parse::<u64>().ok());
    sum(slots.collect::<Option<Vec<_>>>()?)
}

/// The sum, where it says anything.
fn sum(numbers: impl IntoIterator<Item = u64>) -> Option<u64> {
    let sum = numbers.into_iter().fold(0, u64::saturating_add);
    (sum > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_batch_systems_cpus_are_summed_once_a_node() {
        assert_eq!(of_sinfo("0/24/0/24\n"), Some(24));
        assert_eq!(of_sinfo("slurm_load_partitions: Unable to contact\n"), None);
        let qhost = "HOSTNAME  ARCH  NCPU NSOC NCOR NTHR  LOAD  MEMTOT  MEMUSE  SWAPTO  SWAPUS\n\
                     ----------------------------------------------------------------\n\
                     global    -        -    -    -    -     -       -       -       -       -\n\
                     n1        lx-amd64 8    1    4    8  0.10    7.8G    1.2G  0.0  0.0\n\
                     \x20  all.q                BIP   0/3/16\n\
                     \x20  long.q               BP    0/0/8         d\n\
                     n2        lx-amd64 8    1    4    8  -    7.8G    -  0.0  -\n\
                     \x20  all.q                BIP   0/0/4         au\n";
        assert_eq!(of_qhost(qhost), Some(20));
        assert_eq!(of_condor_status("16\n8\nundefined\n"), Some(24));
        let pbs = "n1\n     Mom = n1\n     resources_available.ncpus = 8\n     resources_assigned.ncpus = 2\n\n\
                   n2\n     resources_available.ncpus = 4\n";
        assert_eq!(of_pbsnodes(pbs), Some(12));
        assert_eq!(of_pbsnodes("n1\n     state = free\n     np = 6\n"), Some(6));
        let bhosts = "HOST_NAME STATUS JL/U MAX NJOBS RUN SSUSP USUSP RSV\nh1 ok - 8 0 0 0 0 0\nh2 closed - 4 4 4 0 0 0\n";
        assert_eq!(of_bhosts(bhosts), Some(12));
        assert_eq!(
            of_bhosts("HOST_NAME STATUS JL/U MAX NJOBS\nh1 ok - - 0\n"),
            None
        );
        assert_eq!(of_pbsnodes(""), None);
    }
}
