//! Where jobs are that were handed in or taken here.

use std::io::Write;

use fairmesh_api::ForwardBody;
use fairmesh_model::clean;

use super::{StatusArgs, tried};
use crate::ask::unless_refused;
use crate::output::{Exit, Table};

pub(super) async fn run(args: &StatusArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let parameters = [("job", args.job.as_deref())];
    let asked = args.ask.get::<ForwardBody>("/v1/forward", &parameters, out);
    let Some((answer, is_written)) = unless_refused(asked.await)? else {
        return Ok(Exit::Failure);
    };
    if is_written {
        return Ok(Exit::Success);
    }
    let mut table = Table::new("Job|Key|User|>CPUs|From|State|Site|Batch|Why");
    for job in &answer.body.jobs {
        let text = |text: &Option<String>| text.as_deref().map(clean).unwrap_or_default();
        let from: Vec<String> = job.from.iter().map(|of| clean(of)).collect();
        table.row([
            job.job.chars().take(16).collect(),
            clean(&job.key),
            clean(&job.user),
            job.cpus.to_string(),
            from.join(","),
            match job.withdrawal.as_deref() {
                Some("wanted") => clean(&job.state) + ", wanted back",
                _ => clean(&job.state),
            },
            text(&job.site),
            text(&job.batch),
            text(&job.why) + &tried(&job.tried),
        ]);
    }
    table.write(out, &args.ask.output)?;
    Ok(Exit::Success)
}
