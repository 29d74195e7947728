//! Arguments of `monitor`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// What is recorded, or which recordings are shown.
#[derive(Debug, Args)]
pub(crate) struct MonitorArgs {
    /// Time between two samples
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) every: Duration,
    /// How long to record: 90s, 15m, 2h, 14d [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) length: Option<Duration>,
    /// Folder to write [default: lab-results/monitor-TIME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Whom to ping for each sample: an address, or NAME=ADDRESS to call it that; several times for several
    #[arg(long, value_name = "TARGET")]
    pub(crate) target: Vec<String>,
    /// Process whose processor time is a series of its own, by its number; several times for several
    #[arg(long, value_name = "PID")]
    pub(crate) process: Vec<u32>,
    /// Interface whose traffic is recorded
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
    /// Watch the Linux machine that this command reaches, such as "ssh gateway" or "nsenter --net=/run/netns/gw --"
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["snmp", "lab"])]
    pub(crate) via: Option<String>,
    /// Watch a gateway by SNMP: its address or name, with :PORT where that is not 161
    #[arg(long, value_name = "HOST", conflicts_with_all = ["lab", "process"])]
    pub(crate) snmp: Option<String>,
    /// Community of SNMP version 2c; never written anywhere
    #[arg(long, value_name = "NAME", default_value = "public", hide_env_values = true)]
    #[arg(env = "FORDWAY_SNMP_COMMUNITY")]
    pub(crate) community: String,
    /// User of SNMP version 3; its password is taken from FORDWAY_SNMP_PASSWORD, that of AES-128
    /// encryption from FORDWAY_SNMP_PRIVACY
    #[arg(long, value_name = "NAME", requires = "snmp")]
    pub(crate) snmp_user: Option<String>,
    /// The user's password is checked with SHA-1 rather than SHA-256
    #[arg(long, requires = "snmp_user")]
    pub(crate) snmp_sha1: bool,
    /// Deploy this mechanism of nat64-vs-nat44 on a network of the lab, fetch pages through it, and record that
    /// (needs root)
    #[arg(long, value_name = "MECHANISM", conflicts_with_all = ["process", "interface"])]
    pub(crate) lab: Option<String>,
    /// Pages of 173,225 octets that are fetched each second with --lab
    #[arg(long, value_name = "N", default_value = "20")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) pages: u64,
    /// Make the report of a recording again
    #[arg(long, value_name = "DIR", conflicts_with = "compare")]
    pub(crate) report: Option<PathBuf>,
    /// Compare two recordings: box plots, tests, effects; differences are the second less the first
    #[arg(long, value_names = ["A", "B"], num_args = 2)]
    pub(crate) compare: Vec<PathBuf>,
    /// The gateway's program [default: $FORDWAY_BIN, beside fordway-lab, then PATH]
    #[arg(long, value_name = "PATH")]
    pub(crate) fordway: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A length of time as people write it.
fn duration(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        other => return Err(format!("`{other}` is no unit; write 500ms, 10s, 15m, 2h or 14d")),
    };
    let value: f64 = number.parse().map_err(|_| format!("`{number}` is no number"))?;
    let seconds = value * unit;
    // A thousand years are as good as for ever, and any clock bears them.
    if !(0.1..=3.2e10).contains(&seconds) {
        return Err("must be 0.1 s at least, and no more than a thousand years".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        let of = |text| duration(text).map(|d| d.as_secs_f64());
        assert_eq!((of("10"), of("500ms"), of("1.5m")), (Ok(10.0), Ok(0.5), Ok(90.0)));
        assert_eq!((of("2h"), of("14d")), (Ok(7200.0), Ok(1_209_600.0)));
        for wrong in ["", "s", "-1s", "5 weeks", "1w", "0", "1ms", "inf", "NaN", "1e99s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
