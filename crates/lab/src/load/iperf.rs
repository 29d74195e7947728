//! TCP throughput by `iperf3`, with its JSON output.

use std::path::Path;
use std::time::Duration;

use fordway_data::spec::Profile;
use serde_json::Value;

use crate::backend::{Backend, Cap, Place};
use crate::error::{LabError, Result};
use crate::process::{Finished, Output, Running, poll};

const PORT: &str = "5201";
/// The slowest path that a flow of so many octets is waited for, octets per second.
const SLOWEST: u64 = 1_000_000;

/// What one flow carried.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Flow {
    /// Payload rate at the receiver over the whole flow.
    pub(crate) gbit_s: f64,
    /// Payload octets that arrived.
    pub(crate) bytes: u64,
    /// Payload octets that the sender gave to its socket: what was under way at the end is part of them.
    pub(crate) sent: u64,
    /// Seconds at the receiver.
    pub(crate) seconds: f64,
    /// Segments sent again.
    pub(crate) retransmits: Option<u64>,
    /// End of interval in s, rate in Gbit/s.
    pub(crate) series: Vec<(f64, f64)>,
    /// Processor use of the client process, per cent of one core.
    pub(crate) client_cpu: f64,
    /// Processor use of the server process, per cent of one core.
    pub(crate) server_cpu: f64,
}

/// Starts a server that serves flow after flow, and waits until it listens.
pub(crate) fn serve(backend: &dyn Backend, place: &Place, log: &Path) -> Result<Running> {
    let argv = ["iperf3", "-s", "-p", PORT, "--forceflush"].map(str::to_owned);
    let mut server = backend.run(Some(place), &argv, Output::Log(log))?;
    let listening = poll(Duration::from_secs(5), || {
        let said = std::fs::read_to_string(log).unwrap_or_default();
        (said.contains("listening") || !server.alive()).then_some(())
    })?;
    if listening.is_none() || !server.alive() {
        let said = std::fs::read_to_string(log).unwrap_or_default();
        return Err(LabError::Command {
            argv: server.argv().join(" "),
            status: "not listening".into(),
            stderr: crate::process::last_lines(&said, 2),
        });
    }
    Ok(server)
}

/// Command line of one flow of so many seconds, or of as many octets as the profile says; `down` sends from the server
/// to the client, and none sends more than `cap`.
pub(crate) fn argv(
    target: std::net::IpAddr,
    profile: &Profile,
    seconds: u64,
    down: bool,
    cap: Option<Cap>,
) -> Vec<String> {
    let (end, length) = match profile.flow_octets {
        Some(octets) => ("-n", octets.to_string()),
        None => ("-t", seconds.to_string()),
    };
    let (target, interval) = (target.to_string(), profile.interval_s.to_string());
    let mut argv: Vec<String> =
        ["iperf3", "-c", &target, "-p", PORT, "-J", end, &length, "-i"].map(str::to_owned).into();
    argv.extend([interval, "--connect-timeout".into(), "3000".into()]);
    if down {
        argv.push("-R".into());
    }
    if let Some(cap) = cap {
        argv.extend(["-b".into(), format!("{}K", (cap.gbit_s * 1e6).floor())]);
    }
    argv
}

/// Sends one flow by such a command line.
pub(crate) fn measure(
    backend: &dyn Backend,
    place: &Place,
    argv: &[String],
    profile: &Profile,
    seconds: u64,
) -> Result<(Finished, Result<Flow>)> {
    let length = profile.flow_octets.map_or(seconds, |octets| octets / SLOWEST);
    let limit = Duration::from_secs(length + 15);
    let finished = backend.run(Some(place), argv, Output::Keep)?.wait(limit)?;
    let flow = parse(&finished.stdout);
    Ok((finished, flow))
}

/// Parts of what `iperf3` says when the path carried no connection, or lost it. Other errors are its own.
const PATH: [&str; 5] = [
    "unable to connect",
    "timed out",
    "Connection reset",
    "control socket has closed",
    "Network is unreachable",
];

/// Gbit/s that arrived of the flows of the other way, of a client that was told `--bidir`.
pub(crate) fn other_way(text: &str) -> Result<f64> {
    let bad = |why: &str| LabError::Parse { tool: "iperf3", why: why.to_owned() };
    let json: Value = serde_json::from_str(text).map_err(|e| bad(&e.to_string()))?;
    let path = "/end/sum_received_bidir_reverse/bits_per_second";
    let bits = json.pointer(path).and_then(Value::as_f64).ok_or_else(|| bad("no other way"))?;
    Ok(bits / 1e9)
}

/// Reads the JSON of an `iperf3` client.
pub(crate) fn parse(text: &str) -> Result<Flow> {
    let bad = |why: String| LabError::Parse { tool: "iperf3", why };
    let json: Value = serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
    if let Some(error) = json["error"].as_str() {
        if PATH.iter().any(|part| error.contains(part)) {
            return Err(LabError::Failed(format!("iperf3: {error}")));
        }
        return Err(bad(error.to_owned()));
    }
    let number = |path: &str| {
        json.pointer(path).and_then(Value::as_f64).ok_or_else(|| bad(format!("no {path}")))
    };
    let intervals = json["intervals"].as_array().ok_or_else(|| bad("no intervals".into()))?;
    let series = intervals
        .iter()
        .filter_map(|i| {
            Some((i.pointer("/sum/end")?.as_f64()?, i.pointer("/sum/bits_per_second")?.as_f64()?))
        })
        .map(|(end, bits)| (end, bits / 1e9))
        .collect();
    Ok(Flow {
        gbit_s: number("/end/sum_received/bits_per_second")? / 1e9,
        bytes: number("/end/sum_received/bytes")? as u64,
        sent: number("/end/sum_sent/bytes")? as u64,
        seconds: number("/end/sum_received/seconds")?,
        retransmits: json.pointer("/end/sum_sent/retransmits").and_then(Value::as_u64),
        series,
        client_cpu: number("/end/cpu_utilization_percent/host_total")?,
        server_cpu: number("/end/cpu_utilization_percent/remote_total")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"{
        "start": {"version": "iperf 3.12"},
        "intervals": [
            {"sum": {"start": 0, "end": 1.0, "bits_per_second": 2e9}},
            {"sum": {"start": 1.0, "end": 2.0, "bits_per_second": 4e9}}],
        "end": {
            "sum_sent": {"bytes": 751000000, "retransmits": 7},
            "sum_received": {"seconds": 2.0, "bytes": 750000000, "bits_per_second": 3e9},
            "cpu_utilization_percent": {"host_total": 50.5, "remote_total": 25.0}}}"#;

    #[test]
    fn rate_series_and_counters_come_from_the_receiver() {
        let flow = parse(SAMPLE).unwrap();
        assert_eq!(flow.gbit_s, 3.0);
        assert_eq!((flow.bytes, flow.sent), (750_000_000, 751_000_000));
        assert_eq!(flow.retransmits, Some(7));
        assert_eq!(flow.series, vec![(1.0, 2.0), (2.0, 4.0)]);
    }

    #[test]
    fn a_flow_keeps_below_the_cap_of_the_wire() {
        let target = "192.0.2.2".parse().unwrap();
        let profile = quick();
        let words = |cap| argv(target, &profile, 1, true, cap).join(" ");
        assert!(words(Some(Cap { gbit_s: 0.5, packets_s: 1 })).ends_with("-R -b 500000K"));
        assert!(!words(None).contains("-b"));
    }

    fn quick() -> Profile {
        fordway_data::spec::Experiment::find("goals").unwrap().profile["quick"].clone()
    }

    #[test]
    fn a_flow_ends_by_its_time_or_by_its_octets_alone() {
        let target = "192.0.2.2".parse().unwrap();
        let by_time = quick();
        let by_octets = Profile { flow_octets: Some(5000), ..quick() };
        let words = |profile| format!("{} ", argv(target, profile, 7, false, None).join(" "));
        assert!(words(&by_time).contains(" -t 7 ") && !words(&by_time).contains(" -n "));
        assert!(words(&by_octets).contains(" -n 5000 ") && !words(&by_octets).contains(" -t "));
    }

    #[test]
    fn the_other_way_of_two_has_sums_of_its_own() {
        let both = SAMPLE.replace(
            "\"sum_sent\"",
            "\"sum_received_bidir_reverse\": {\"bits_per_second\": 1.5e9}, \"sum_sent\"",
        );
        assert_eq!((parse(&both).unwrap().gbit_s, other_way(&both).unwrap()), (3.0, 1.5));
        assert!(other_way(SAMPLE).is_err());
    }

    #[test]
    fn an_error_of_iperf_is_an_error() {
        let of = |error: &str| {
            let text = format!(r#"{{"start":{{}},"intervals":[],"end":{{}},"error":"{error}"}}"#);
            let found = parse(&text).unwrap_err();
            assert!(found.to_string().contains(error), "{found}");
            found.is_the_mechanisms()
        };
        assert!(of("unable to connect to server: Connection timed out"));
        assert!(!of("the server is busy running a test. try again later"));
    }
}
