//! `fairmesh prices`: what each site's machines and queues cost, as it has signed.

use std::io::Write;

use fairmesh_api::words::{name_or_id, timestamp};
use fairmesh_api::{PricesBody, SitePricesBody};
use fairmesh_model::{WallTime, clean};

use super::AskArgs;
use crate::output::{Exit, Table};

/// Show what each site's machines and queues cost, as it has signed for its VOs
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PricesArgs {
    /// Whom to ask, and how.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Only what is published to members of this VO: its name or id
    #[arg(long)]
    pub vo: Option<String>,
    /// Only this site: its name or id
    #[arg(long)]
    pub site: Option<String>,
    /// Queues and qualities of service and their costs, instead of machines
    #[arg(long)]
    pub queues: bool,
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked.
pub async fn run(args: &PricesArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let parameters = [("vo", args.vo.as_deref()), ("site", args.site.as_deref())];
    let table = if args.queues { queues } else { machines };
    let asked = args.ask.table("/v1/prices", &parameters, out, table);
    let (exit, body) = asked.await?;
    if body.is_some_and(|body| body.sites.is_empty()) {
        let who = match &args.site {
            Some(site) => format!("{} has not", clean(site)),
            None => "no site has".to_owned(),
        };
        note!(
            "{who} published what machines and queues cost ([[machine]], [charging.queues], [charging.qos])"
        );
    }
    Ok(exit)
}

fn machines(body: &PricesBody) -> Table {
    let mut table = Table::new(
        "VO|Site|Signed|Class|>Count|>CPUs|>MemMiB|>GPUs|>DiskMiB|>SPEC|Properties|Queues|Hosts",
    );
    for site in &body.sites {
        let [vo, name, signed] = place(site);
        for machine in &site.machines {
            let hosts = site.hosts.iter().filter(|of| of.class == machine.class);
            let hosts: Vec<&str> = hosts.map(|of| of.hosts.as_str()).collect();
            table.row([
                vo.clone(),
                name.clone(),
                signed.clone(),
                machine.class.clone(),
                machine.count.to_string(),
                machine.cpus.to_string(),
                machine.mem_mib.to_string(),
                machine.gpus.to_string(),
                machine.disk_mib.to_string(),
                machine.spec.clone(),
                machine.properties.join(","),
                machine.queues.join(","),
                hosts.join(","),
            ]);
        }
    }
    table
}

fn queues(body: &PricesBody) -> Table {
    let mut table = Table::new("VO|Site|Signed|Queue|>Cost|QOS");
    let nothing = String::new();
    for site in &body.sites {
        let [vo, name, signed] = place(site);
        let queues = site.queues.iter().map(|of| (&of.queue, &of.cost, &nothing));
        let qos = site.qos.iter().map(|of| (&nothing, &of.cost, &of.qos));
        for (queue, cost, qos) in queues.chain(qos) {
            table.row([
                vo.clone(),
                name.clone(),
                signed.clone(),
                queue.clone(),
                cost.clone(),
                qos.clone(),
            ]);
        }
    }
    table
}

fn place(site: &SitePricesBody) -> [String; 3] {
    [
        name_or_id(site.vo_name.as_deref(), &site.vo),
        name_or_id(site.name.as_deref(), &site.site),
        timestamp(WallTime(site.signed_ms)),
    ]
}
