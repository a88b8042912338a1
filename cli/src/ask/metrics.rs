//! `fairmesh metrics [--output FILE]`: what Prometheus would scrape, printed, or written for a collector of text files.
//!
//! The node gives OpenMetrics; collectors of files (node_exporter's `textfile`) read the older text format, in which the
//! type of a counter is that of its series, and units and ends are not told.
//! Invariant: whoever reads the file sees all of it, or what was there before.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use fairmesh_schedulers::state::replace;

use super::NodeArgs;
use crate::output::Exit;

/// Print metrics, or write them for a collector of text files
#[derive(Debug, Clone, Default, clap::Args)]
pub struct MetricsArgs {
    /// Whom to ask.
    #[command(flatten)]
    pub node: NodeArgs,
    /// With the counters of each peer
    #[arg(long)]
    pub sites: bool,
    /// Write them to this file, as a whole, instead
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// If the node cannot be asked, or the file not be written.
pub async fn run(args: &MetricsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let control = args.node.control();
    let target = match args.sites {
        true => "/v1/metrics?sites=true",
        false => "/v1/metrics",
    };
    let text = as_text_format(&control.text(target).await?);
    match &args.output {
        None => out.write_all(text.as_bytes())?,
        Some(file) => replace(file, text.as_bytes(), Some(0o644))
            .with_context(|| format!("{}", file.display()))?,
    }
    Ok(Exit::Success)
}

/// OpenMetrics in Prometheus' text format.
fn as_text_format(metrics: &str) -> String {
    let mut text = String::with_capacity(metrics.len());
    let mut help = None;
    for line in metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match [words.next(), words.next(), words.next(), words.next()] {
            [Some("#"), Some("HELP"), Some(name), Some(words)] => help = Some((name, words)),
            [Some("#"), Some("TYPE"), Some(name), Some(kind)] => {
                let (ending, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    kind => ("", kind),
                };
                let words = help.take().filter(|(of, _)| *of == name);
                if let Some((_, words)) = words {
                    text.push_str(&format!("# HELP {name}{ending} {words}\n"));
                }
                text.push_str(&format!("# TYPE {name}{ending} {kind}\n"));
            }
            [Some("#"), ..] => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_facts_have_the_names_of_their_series() {
        let open = "# HELP a What.\n# TYPE a counter\na_total{x=\"y z\"} 1\n# HELP b_seconds When.\n\
                    # TYPE b_seconds gauge\n# UNIT b_seconds seconds\nb_seconds 2.5\n# HELP c Which.\n# TYPE c info\n\
                    c_info{v=\"1\"} 1\n# EOF\n";
        let text = "# HELP a_total What.\n# TYPE a_total counter\na_total{x=\"y z\"} 1\n# HELP b_seconds When.\n\
                    # TYPE b_seconds gauge\nb_seconds 2.5\n# HELP c_info Which.\n# TYPE c_info gauge\n\
                    c_info{v=\"1\"} 1\n";
        assert_eq!(as_text_format(open), text);
    }
}
