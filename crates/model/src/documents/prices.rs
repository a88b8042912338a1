//! What an owner says about his machines and queues, so that others can check what he charges.
//!
//! Invariant: every class has CPUs, memory and a speed; names are short and visible; the list is
//! bounded. The list holds installed capacity, never what is free: a charge must not depend on
//! where and when a scheduler started the job.
//! Deliberately not here: what a job is charged (`fairmesh-fairshare`).
//! Source: MetaCentrum's multi-resource fairshare (Klusáček and Rudová, 2014).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::charter::validate_name;
use crate::factor::Factor;

/// Most machine classes of one site: bounds the work of one charge and what a site publishes. The
/// most mixed of clusters have some fifty kinds of machine.
pub const MACHINE_CLASSES_MAX: usize = 256;

/// Most queues and qualities of service with a factor: bounds what a site publishes.
pub const QUEUES_MAX: usize = 1_024;

/// Most patterns of machines' names: bounds what a site publishes. A cluster names its machines in
/// rows, so a few patterns tell each class.
pub const HOSTS_MAX: usize = 1_024;

/// Most properties and queues of all classes together: bounds what a site publishes. A class has a few.
pub const LABELS_MAX: usize = 2_048;

/// Machines of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineClass {
    /// How many there are, at least 1.
    pub count: u32,
    /// CPUs of one, at least 1.
    pub cpus: u32,
    /// Memory of one that jobs may ask for, MiB, at least 1.
    pub mem_mib: u64,
    /// Number of GPUs of one machine.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gpus: u32,
    /// Scratch disk of one that jobs may ask for, MiB.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub disk_mib: u64,
    /// SPEC: its speed relative to the VO's reference machine; walltime × SPEC is the same
    /// whichever machine runs a job. Above 0.
    pub spec: Factor,
    /// What it has that jobs may ask for by name: a network, an instruction set.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub properties: BTreeSet<String>,
    /// The queues whose jobs it runs; of all, where none is named.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub queues: BTreeSet<String>,
}

impl MachineClass {
    /// Whether a job of `queue` that asks for `properties` can run on it. A job whose queue is not known
    /// can run wherever one of some queue can.
    pub fn takes(&self, queue: Option<&str>, properties: &[String]) -> bool {
        let of_queue = |queue: &str| self.queues.is_empty() || self.queues.contains(queue);
        queue.is_none_or(of_queue)
            && properties
                .iter()
                .all(|asked| self.properties.contains(asked))
    }
}

/// Machine classes and the factors of queues and qualities of service of one site, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PriceList {
    /// Machine classes by name.
    #[serde(default)]
    pub machines: BTreeMap<String, MachineClass>,
    /// What a job of a queue is charged, times its charge elsewhere. A queue that is not listed
    /// costs 1.
    #[serde(default)]
    pub queues: BTreeMap<String, Factor>,
    /// What a job of a quality of service is charged, times its charge elsewhere; 1 where it is not listed. The factors
    /// of a queue and of a quality of service multiply.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub qos: BTreeMap<String, Factor>,
}

impl PriceList {
    /// What a job of `queue` costs.
    pub fn queue_cost(&self, queue: Option<&str>) -> Factor {
        let listed = queue.and_then(|queue| self.queues.get(queue));
        listed.copied().unwrap_or_default()
    }

    /// What a job of the quality of service `qos` costs.
    pub fn qos_cost(&self, qos: Option<&str>) -> Factor {
        let listed = qos.and_then(|qos| self.qos.get(qos));
        listed.copied().unwrap_or_default()
    }

    /// Says what is wrong with patterns of machines' names, if anything: each with its class.
    ///
    /// # Errors
    /// The first thing that is.
    pub fn validate_hosts(&self, hosts: &[(String, String)]) -> Result<(), String> {
        if hosts.len() > HOSTS_MAX {
            return Err(format!("more than {HOSTS_MAX} patterns of machines' names"));
        }
        hosts.iter().try_for_each(|(pattern, class)| {
            validate_name("machine", pattern)?;
            match self.machines.contains_key(class) {
                true => Ok(()),
                false => Err(format!("machines `{pattern}` are of no class `{class}`")),
            }
        })
    }

    /// CPUs of all machines together.
    pub fn cpus(&self) -> u64 {
        let of_class =
            |class: &MachineClass| u64::from(class.count).saturating_mul(u64::from(class.cpus));
        self.machines
            .values()
            .fold(0, |sum, class| sum.saturating_add(of_class(class)))
    }

    /// Says what is wrong with the list, if anything.
    ///
    /// # Errors
    /// The first thing that is.
    pub fn validate(&self) -> Result<(), String> {
        if self.machines.len() > MACHINE_CLASSES_MAX {
            return Err(format!("more than {MACHINE_CLASSES_MAX} machine classes"));
        }
        if self.queues.len() + self.qos.len() > QUEUES_MAX {
            return Err(format!(
                "more than {QUEUES_MAX} queues and qualities of service"
            ));
        }
        for (name, class) in &self.machines {
            validate_name("machine class", name)?;
            let missing = [
                ("count", class.count == 0),
                ("CPUs", class.cpus == 0),
                ("memory", class.mem_mib == 0),
                ("SPEC", class.spec.millionths() == 0),
            ];
            if let Some((what, _)) = missing.iter().find(|(_, missing)| *missing) {
                return Err(format!(
                    "machine class `{name}`: the {what} must be above 0"
                ));
            }
        }
        let of_classes = |labels: fn(&MachineClass) -> &BTreeSet<String>| {
            self.machines.values().flat_map(labels)
        };
        let properties = of_classes(|class| &class.properties);
        let queues = of_classes(|class| &class.queues);
        if properties.clone().chain(queues.clone()).count() > LABELS_MAX {
            return Err(format!(
                "more than {LABELS_MAX} properties and queues of machine classes"
            ));
        }
        for property in properties {
            validate_name("property", property)?;
        }
        let mut queues = self.queues.keys().chain(queues);
        queues.try_for_each(|name| validate_name("queue", name))?;
        let mut qos = self.qos.keys();
        qos.try_for_each(|name| validate_name("QOS", name))
    }
}

fn is_zero<T: Default + PartialEq>(amount: &T) -> bool {
    *amount == T::default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cbor;

    fn class() -> impl Strategy<Value = MachineClass> {
        let shape = (1..u32::MAX, 1..u32::MAX, 1..u64::MAX);
        let labels = || proptest::collection::btree_set("[a-z]{1,8}", 0..3);
        let labels = (labels(), labels());
        (shape, any::<u32>(), any::<u64>(), 1..u32::MAX, labels).prop_map(
            |((count, cpus, mem_mib), gpus, disk_mib, spec, (properties, queues))| MachineClass {
                count,
                cpus,
                mem_mib,
                gpus,
                disk_mib,
                spec: Factor::from_millionths(spec),
                properties,
                queues,
            },
        )
    }

    fn prices() -> impl Strategy<Value = PriceList> {
        let costs = || {
            let cost = any::<u32>().prop_map(Factor::from_millionths);
            proptest::collection::btree_map("[ -.0-~]{1,64}", cost, 0..5)
        };
        let machines = proptest::collection::btree_map("[a-z]{1,8}", class(), 0..5);
        (machines, costs(), costs()).prop_map(|(machines, queues, qos)| PriceList {
            machines,
            queues,
            qos,
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(prices in prices()) {
            let bytes = cbor::to_vec(&prices);
            let read = cbor::from_slice::<PriceList>(&bytes, bytes.len());
            prop_assert_eq!(read.as_ref(), Ok(&prices));
            prop_assert_eq!(cbor::to_vec(&prices), bytes);
            prop_assert!(prices.validate().is_ok());
        }
    }

    fn a_class() -> MachineClass {
        MachineClass {
            count: 1,
            cpus: 8,
            mem_mib: 16,
            gpus: 0,
            disk_mib: 0,
            spec: Factor::ONE,
            properties: BTreeSet::new(),
            queues: BTreeSet::new(),
        }
    }

    /// What a price list says that was signed before classes had properties and queues.
    #[test]
    fn a_class_of_an_old_list_keeps_its_bytes() {
        let old = b"\xa4\x64cpus\x08\x64spec\x1a\x00\x0f\x42\x40\x65count\x01\x67mem_mib\x10";
        assert_eq!(cbor::to_vec(&a_class()), old);
        assert_eq!(cbor::from_slice::<MachineClass>(old, 64), Ok(a_class()));
    }

    /// A price list that was signed before there were factors of qualities of service.
    #[test]
    fn a_list_without_qualities_of_service_keeps_its_bytes() {
        let old = b"\xa2\x66queues\xa1\x61q\x02\x68machines\xa0";
        let list = PriceList {
            queues: BTreeMap::from([("q".to_owned(), Factor::from_millionths(2))]),
            ..PriceList::default()
        };
        assert_eq!(cbor::to_vec(&list), old);
        assert_eq!(cbor::from_slice::<PriceList>(old, 64), Ok(list));
    }

    #[test]
    fn properties_and_queues_are_names_and_not_too_many() {
        let named = |count: usize| (0..count).map(|index| format!("{index:0>64}")).collect();
        let list = |properties, queues| PriceList {
            machines: BTreeMap::from([(
                "a".to_owned(),
                MachineClass {
                    properties,
                    queues,
                    ..a_class()
                },
            )]),
            ..PriceList::default()
        };
        assert!(list(named(LABELS_MAX - 1), named(1)).validate().is_ok());
        let error = list(named(LABELS_MAX), named(1)).validate();
        assert!(error.is_err_and(|error| error.contains("properties and queues")));
        let odd = || BTreeSet::from(["a/b".to_owned()]);
        let error = list(odd(), named(0)).validate();
        assert!(error.is_err_and(|error| error.contains("property name")));
        let error = list(named(0), odd()).validate();
        assert!(error.is_err_and(|error| error.contains("queue name")));
    }

    #[test]
    fn one_class_queue_or_pattern_too_many_is_refused() {
        let class = a_class();
        let named = |index: usize| format!("{index:0>64}");
        let is_valid = |classes, (queues, qos), hosts| {
            let list = PriceList {
                machines: (0..classes)
                    .map(|index| (named(index), class.clone()))
                    .collect(),
                queues: (0..queues)
                    .map(|index| (named(index), Factor::MAX))
                    .collect(),
                qos: (0..qos).map(|index| (named(index), Factor::MAX)).collect(),
            };
            let hosts: Vec<_> = (0..hosts).map(|index| (named(index), named(0))).collect();
            list.validate().and(list.validate_hosts(&hosts)).is_ok()
        };
        assert!(is_valid(MACHINE_CLASSES_MAX, (QUEUES_MAX, 0), HOSTS_MAX));
        assert!(!is_valid(MACHINE_CLASSES_MAX + 1, (0, 0), 0));
        assert!(!is_valid(0, (QUEUES_MAX + 1, 0), 0));
        assert!(!is_valid(0, (QUEUES_MAX, 1), 0));
        assert!(!is_valid(1, (0, 0), HOSTS_MAX + 1));
        assert!(!is_valid(0, (0, 0), 1), "of no class");
    }

    #[test]
    fn a_class_without_capacity_or_a_visible_name_is_refused() {
        type Change = fn(&mut MachineClass);
        let rows: [(&str, Change, Option<&str>); 7] = [
            ("thin", |_| (), None),
            ("thin", |class| class.count = 0, Some("count")),
            ("thin", |class| class.cpus = 0, Some("CPUs")),
            ("thin", |class| class.mem_mib = 0, Some("memory")),
            (
                "thin",
                |class| class.spec = Factor::from_millionths(0),
                Some("SPEC"),
            ),
            ("", |_| (), Some("empty")),
            ("a/b", |_| (), Some("machine class name")),
        ];
        for (name, change, problem) in rows {
            let mut class = a_class();
            change(&mut class);
            let prices = PriceList {
                machines: BTreeMap::from([(name.to_owned(), class.clone())]),
                ..PriceList::default()
            };
            match (prices.validate(), problem) {
                (Ok(()), None) => {}
                (Err(error), Some(problem)) => assert!(error.contains(problem), "{error}"),
                (outcome, _) => panic!("{name} {class:?}: {outcome:?}"),
            }
        }
    }
}
