//! Arguments of the commands that show what daemons do.

use std::time::Duration;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Write the status as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Time between two samples
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Write one view as text: rates over one interval
    #[arg(long)]
    pub(crate) once: bool,
    /// Write each view as a JSON object on a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// Write the counters as JSON
    #[arg(long, conflicts_with = "prometheus")]
    pub(crate) json: bool,
    /// Write the counters as Prometheus (OpenMetrics) text
    #[arg(long)]
    pub(crate) prometheus: bool,
    /// Show rates, and show them again every second until interrupted
    #[arg(long, conflicts_with_all = ["json", "prometheus"])]
    pub(crate) watch: bool,
    /// Show each queue apart
    #[arg(long)]
    pub(crate) per_queue: bool,
}

fn interval(text: &str) -> Result<Duration, &'static str> {
    let most = Duration::from_secs(3600);
    let least = Duration::from_millis(100);
    let time = humantime::parse_duration(text).ok().filter(|time| (least..=most).contains(time));
    time.ok_or("write a time between 100ms and 1h, such as 2s")
}
