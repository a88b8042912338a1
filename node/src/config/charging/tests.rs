//! What can be written of charging, and mistakes with the place where they are.

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    charging: RawCharging,
    #[serde(default)]
    machine: Vec<RawMachine>,
}

/// What of a file has no effect, on one line each.
fn vain(text: &str, has_vos: bool) -> Vec<String> {
    let source = Source {
        file: "c.toml",
        text,
    };
    let raw: RawFile = source.parse().expect("TOML");
    let charging = charging(source, &raw.charging, &raw.machine).expect("valid");
    let tables = (&raw.charging, &raw.machine[..]);
    let found = without_effect(source, tables, &charging, has_vos);
    found.iter().map(FileError::line).collect()
}

fn read(text: &str) -> Result<(Charging, ChargeRule), FileError> {
    let source = Source {
        file: "c.toml",
        text,
    };
    let raw: RawFile = source.parse()?;
    let rule = charge_rule(source, &raw.charging)?;
    Ok((charging(source, &raw.charging, &raw.machine)?, rule))
}

const FAT: &str = "[[machine]]\nclass = \"fat\"\ncount = 4\ncpus = 32\nmemory = \"512GiB\"\n";

#[test]
fn nothing_written_charges_cpu_time_in_full() {
    let (charging, rule) = read("").expect("valid");
    assert_eq!(charging, Charging::default());
    assert_eq!(rule, ChargeRule::default());
}

#[test]
fn all_of_it_is_read_exactly() {
    let text = format!(
        "{FAT}gpus = 2\ndisk = \"1TiB\"\nspec = 1.1\nproperties = [\"ib\"]\nqueues = [\"long\"]\nhosts = [\"fat*\", \"big1\"]\n\
         [charging]\nlocal = {{ penalty = {{ gpu_weight = 4000, disk = false, factor_max = 2.5 }} }}\n\
         discounts = {{ preemptible = 50, idle = 12.5 }}\n\
         states = [\"COMPLETED\", \"TIMEOUT\"]\nwall = \"span\"\ncpus_unless_stated = 1\n\
         preemptible = [\"scavenge\"]\n[charging.queues]\nexpress = 2.5\nfree = 0\n\
         [charging.partitions]\nnight = 0.75\n[charging.qos]\nexpress = 0.1\n"
    );
    let (charging, rule) = read(&text).expect("valid");
    let factor = |text| Factor::parse(text).expect("a factor");
    let fat = MachineClass {
        count: 4,
        cpus: 32,
        mem_mib: 512 << 10,
        gpus: 2,
        disk_mib: 1 << 20,
        spec: factor("1.1"),
        properties: BTreeSet::from(["ib".to_owned()]),
        queues: BTreeSet::from(["long".to_owned()]),
    };
    assert_eq!(charging.prices.machines["fat"], fat);
    assert_eq!(charging.prices.queue_cost(Some("express")), factor("2.5"));
    assert_eq!(charging.prices.queue_cost(Some("free")), factor("0"));
    assert_eq!(charging.prices.queue_cost(Some("other")), Factor::ONE);
    assert_eq!(charging.prices.queue_cost(Some("night")), factor("0.75"));
    assert_eq!(charging.prices.qos_cost(Some("express")), factor("0.1"));
    assert_eq!(charging.prices.qos_cost(Some("night")), Factor::ONE);
    assert_eq!(
        charging.local_rule,
        ChargingRule::Penalty {
            gpu: true,
            gpu_weight: Some(4_000),
            disk: false,
            factor_max: factor("2.5")
        }
    );
    assert_eq!(charging.local_discounts.idle.to_string(), "12.5");
    for (machine, class) in [("fat7", "fat"), ("big1", "fat"), ("fat", "fat")] {
        assert_eq!(charging.class_of(Some(machine)), Some(class));
    }
    // Nobody knows its class: the charge will say so, by its name.
    assert_eq!(charging.class_of(Some("big12")), Some("big12"));
    assert!(rule.states.contains(&JobState::Running));
    assert!(rule.states.contains(&JobState::Timeout));
    assert!(!rule.states.contains(&JobState::Failed));
    assert_eq!(rule.wall, WallRule::Span);
}

#[test]
fn a_rule_is_written_as_it_is_read() {
    for rule in [
        "\"cpu-time\"",
        "{ normalised-time = { spec_max = 1.5 } }",
        "{ weights = { cpu = 1, gpu = 2, mem_gib = 3, max = true } }",
        "{ weights = { cpu = 1, gpu = 2, mem_gib = 3, max = true, spec_max = 2 } }",
        "{ weights = { cpu = 1, gpu = 2, mem_gib = 3, max = true, energy_kwh = 9 } }",
        "{ penalty = { gpu = true, disk = false, factor_max = 4 } }",
        "{ penalty = { gpu = true, gpu_weight = 4000, disk = false, factor_max = 4 } }",
    ] {
        let (charging, _) = read(&format!("[charging]\nlocal = {rule}\n")).expect(rule);
        assert_eq!(RawRule::text(&charging.local_rule), rule);
    }
}

#[test]
fn mistakes_are_shown_with_file_line_and_key() {
    let with = |line: &str| format!("{FAT}{line}\n");
    for (text, place, words) in [
        (with("spec = 0"), "6:8", "`machine.spec`: must be above 0"),
        (
            with("spec = 1e3"),
            "6:8",
            "`machine.spec`: `1e3` is not a factor",
        ),
        (with("spec = \"1\""), "6:8", "`machine.spec`: not a number"),
        (with("spec = 0.1234567"), "6:8", "more than 6 decimals"),
        (
            with("disk = \"9 bananas\""),
            "6:8",
            "`machine.disk`: `9 bananas`",
        ),
        (with("hosts = [\"n[1-3]\"]"), "6:10", "`machine.hosts`"),
        (with("colour = 1"), "6:1", "unknown field `colour`"),
        (
            format!("{FAT}{FAT}"),
            "7:9",
            "`machine.class`: the class `fat`",
        ),
        (
            FAT.replace("cpus = 32", "cpus = 0"),
            "4:8",
            "`machine.cpus`",
        ),
        (
            FAT.replace("\"fat\"", "\"a/b\""),
            "2:9",
            "machine class name",
        ),
        (
            "[charging]\nstates = [\"COMPLETED\", \"RUNNING\"]\n".to_owned(),
            "2:24",
            "`charging.states`: `RUNNING`",
        ),
        (
            "[charging.queues]\nq = -1\n".to_owned(),
            "2:5",
            "`charging.queues.q`",
        ),
        (
            "[charging.qos]\nq = \"2\"\n".to_owned(),
            "2:5",
            "`charging.qos.q`: not a number",
        ),
        (
            "[charging.qos]\n\"a/b\" = 2\n".to_owned(),
            "2:9",
            "`charging.qos.a/b`: QOS name `a/b`",
        ),
        (
            "[charging.queues]\nq = 1\n[charging.partitions]\nq = 2\n".to_owned(),
            "4:5",
            "`charging.partitions.q`: [charging.queues] has this name, too",
        ),
        (
            "[charging]\nlocal = { penalty = { factor_max = 0 } }\n".to_owned(),
            "2:36",
            "`charging.local.penalty.factor_max`: must be above 0",
        ),
        (
            "[charging]\nlocal = { normalised-time = { spec_max = 0 } }\n".to_owned(),
            "2:42",
            "`charging.local.normalised-time.spec_max`: must be above 0",
        ),
        (
            "[charging]\nlocal = { penalty = { gpu = false, gpu_weight = 1, factor_max = 1 } }\n"
                .to_owned(),
            "1:1",
            "gpu_weight without gpu",
        ),
        (with("properties = [\"a/b\"]"), "2:9", "property name `a/b`"),
        (
            "[charging]\ndiscounts = { idle = 120 }\n".to_owned(),
            "2:22",
            "`charging.discounts.idle`",
        ),
    ] {
        let error = read(&text).expect_err(&text).to_string();
        assert!(error.starts_with(&format!("c.toml:{place}")), "{error}");
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn keys_that_change_no_charge_are_named_with_what_to_do() {
    let lists = "preemptible = [\"gaps\"]\nidle = [\"rest\"]\n";
    let by_machine = "local = { normalised-time = { spec_max = 2 } }\n";
    // A file, whether it has VOs, and how each line about it begins and ends.
    let rows = [
        (
            "[charging.queues]\nq = 2\n[charging.qos]\nq = 0.1\n".to_owned(),
            false,
            vec![],
        ),
        (format!("[charging]\n{lists}"), true, vec![]),
        (
            format!("[charging]\ndiscounts = {{ preemptible = 50, idle = 0 }}\n{lists}"),
            false,
            vec![],
        ),
        (
            format!("[charging]\ndiscounts = {{ preemptible = 50 }}\n{lists}"),
            false,
            vec![(
                "c.toml:4:9: `charging.idle`: ",
                "discounts = { idle = 50 }, or remove the list",
            )],
        ),
        (
            "[charging]\npreemptible = [\"b\", \"a\"]\nidle = [\"a\"]\n".to_owned(),
            true,
            vec![(
                "c.toml:2:21: `charging.preemptible`: `a` has no effect",
                "in one of the two lists",
            )],
        ),
        (FAT.to_owned(), true, vec![]),
        (
            FAT.to_owned(),
            false,
            vec![(
                "c.toml:2:9: `machine.class`: [[machine]] has no effect",
                "once [vos] has the VO",
            )],
        ),
        (format!("{FAT}[charging]\n{by_machine}"), false, vec![]),
    ];
    for (text, has_vos, expected) in rows {
        let found = vain(&text, has_vos);
        assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
        for (line, (begins, ends)) in found.iter().zip(expected) {
            assert!(line.starts_with(begins) && line.ends_with(ends), "{line}");
        }
    }
}
