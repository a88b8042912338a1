//! Brokers: which site a job is sent to.
//!
//! Invariant: a broker that passed [`Broker::check`] for a number of sites picks one of them, as
//! likely as it says, and makes one draw from the given stream alone.
//!
//! Deliberately not here: brokers that look at load or at fairness. Section 5 of the FSGrid paper
//! has jobs sent at random, and some users' jobs confined to some sites; weights are for Grids whose
//! sites differ in size, where equal parts would drown the small ones.

use crate::random::Stream;

/// How a user's jobs are spread over the sites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broker {
    /// A site at random.
    Random,
    /// Any of these sites, by index; one that is named twice is twice as likely.
    Restricted(Vec<usize>),
    /// Any site, each as likely as its weight by index; sites without one get no jobs. Weights by
    /// capacity, such as cores, load all sites alike.
    Weighted(Vec<u32>),
}

/// A broker that could not send its jobs anywhere. State is unchanged; the configuration is at
/// fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    /// There is no site to choose from.
    #[error("a broker has no site to choose from")]
    NoSites,
    /// An allowed site does not exist.
    #[error("a broker names site {site}, but there are {sites} sites, counted from 0")]
    NoSuchSite {
        /// The site asked for.
        site: usize,
        /// How many there are.
        sites: usize,
    },
}

impl Broker {
    /// Whether this broker can work with `sites` sites.
    pub fn check(&self, sites: usize) -> Result<(), BrokerError> {
        match self {
            Self::Random if sites == 0 => Err(BrokerError::NoSites),
            Self::Restricted(allowed) if allowed.is_empty() => Err(BrokerError::NoSites),
            Self::Weighted(weights) if weights.iter().all(|weight| *weight == 0) => {
                Err(BrokerError::NoSites)
            }
            Self::Random => Ok(()),
            Self::Weighted(weights) if weights.len() > sites => {
                Err(BrokerError::NoSuchSite { site: sites, sites })
            }
            Self::Weighted(_) => Ok(()),
            Self::Restricted(allowed) => match allowed.iter().find(|site| **site >= sites) {
                Some(site) => Err(BrokerError::NoSuchSite { site: *site, sites }),
                None => Ok(()),
            },
        }
    }

    /// The site of the next job, of `sites`.
    ///
    /// # Panics
    /// Where [`Broker::check`] would have said that there is nothing to choose from.
    pub fn pick(&self, sites: usize, stream: &mut Stream) -> usize {
        match self {
            Self::Random => stream.index(sites),
            Self::Restricted(allowed) => allowed[stream.index(allowed.len())],
            Self::Weighted(weights) => stream.weighted(weights),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seed;

    #[test]
    fn picks_stay_within_the_allowed_sites_and_reach_all_of_them() {
        let rows = [
            (Broker::Random, vec![0, 1, 2, 3]),
            (Broker::Restricted(vec![3, 1]), vec![1, 3]),
            (Broker::Weighted(vec![1, 0, 5]), vec![0, 2]),
        ];
        for (broker, expected) in rows {
            let mut stream = Seed(1).stream("broker");
            let mut seen: Vec<_> = (0..200).map(|_| broker.pick(4, &mut stream)).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, expected, "{broker:?}");
        }
    }

    #[test]
    fn weights_are_kept() {
        let broker = Broker::Weighted(vec![100, 300, 0, 600]);
        let mut stream = Seed(1).stream("broker");
        let mut jobs = [0_u32; 4];
        for _ in 0..10_000 {
            jobs[broker.pick(4, &mut stream)] += 1;
        }
        assert!((900..1_100).contains(&jobs[0]), "{jobs:?}");
        assert!((2_850..3_150).contains(&jobs[1]), "{jobs:?}");
        assert_eq!(jobs[2], 0);
    }

    #[test]
    fn a_broker_without_a_site_is_refused() {
        assert_eq!(Broker::Random.check(0), Err(BrokerError::NoSites));
        assert_eq!(
            Broker::Restricted(vec![]).check(6),
            Err(BrokerError::NoSites)
        );
        for nowhere in [vec![], vec![0, 0]] {
            let refused = Broker::Weighted(nowhere).check(6);
            assert_eq!(refused, Err(BrokerError::NoSites));
        }
        assert_eq!(Broker::Weighted(vec![0, 1]).check(6), Ok(()));
        assert_eq!(
            Broker::Weighted(vec![1; 7]).check(6),
            Err(BrokerError::NoSuchSite { site: 6, sites: 6 })
        );
        let beyond = Broker::Restricted(vec![0, 6]);
        assert_eq!(
            beyond.check(6),
            Err(BrokerError::NoSuchSite { site: 6, sites: 6 })
        );
        assert_eq!(beyond.check(7), Ok(()));
    }
}
