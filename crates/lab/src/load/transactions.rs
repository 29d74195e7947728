//! Transactions by HTTP as RFC 9411 orders them: nginx at the server, which counts them, and at the client `wrk` for the
//! highest rate, `hey` for times at a given rate, and `h2load` for many connections at once.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use fordway_data::addresses::SITE_PORT;
use fordway_data::files::write_file;
use serde::{Deserialize, Serialize};

use super::fetch::host_of;
use crate::backend::{Backend, Place, Served, must};
use crate::error::{LabError, Result};
use crate::process::{Finished, Output, Running, find_program, interrupted, last_lines};
use crate::state;
use crate::topology::Network;

/// Transactions of a connection that carries several (RFC 9411 sections 7.3 and 7.5).
pub(crate) const KEPT: u32 = 10;
/// Octets of the mixed objects, each as often as the others (RFC 9411 section 7.3).
pub(crate) const MIXED: [u64; 10] =
    [205, 6144, 8192, 9216, 10_240, 25_600, 26_624, 35_840, 60_416, 355_328];
/// Connections at once while the highest rate is found.
pub(crate) const CONNECTIONS: u64 = 32;
/// Connections at once at a given rate: few, as all of them send at the same time.
pub(crate) const PACED: u64 = 16;
/// Transactions that `hey` remembers.
const REMEMBERED: f64 = 1e6;
/// Seconds after which a transaction has failed.
const PATIENCE_S: u64 = 10;
/// Counts are read at least so often (RFC 9411 section 4.3.4 allows two seconds).
const SAMPLE_S: f64 = 1.0;
/// The ramp-up phase of many connections may take so much longer on a busy machine.
const RAMP_MORE_S: f64 = 5.0;
/// Samples of the shortest sustain phase.
const SAMPLES: f64 = 4.0;

/// Programs of this load that are not installed, with the line that installs them.
pub(crate) fn missing(held: bool) -> Option<String> {
    let client: &[_] =
        if held { &[("h2load", "nghttp2-client")] } else { &[("wrk", "wrk"), ("hey", "hey")] };
    let all = client.iter().chain(&[("nginx", "nginx-light"), ("curl", "curl")]);
    let packages: Vec<&str> = all
        .filter(|(program, _)| find_program(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    (!packages.is_empty()).then(|| format!("apt-get install {}", packages.join(" ")))
}

/// What nginx has counted since it was started, and connections that are open; without those of who asked for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Count {
    /// When, in seconds of the server's clock.
    pub(crate) at_s: f64,
    /// Connections that are open.
    pub(crate) open: u64,
    /// Connections that were accepted.
    pub(crate) accepted: u64,
    /// Requests.
    pub(crate) requests: u64,
}

/// nginx at the server, with an object of each size.
pub(crate) struct Site<'a> {
    backend: &'a dyn Backend,
    place: &'a Place,
    address: IpAddr,
    _served: Served,
    /// How often it was asked for its counts.
    asked: u64,
}

impl<'a> Site<'a> {
    /// Starts it, until dropped; it closes a connection after so many transactions.
    pub(crate) fn open(
        backend: &'a dyn Backend,
        network: &'a Network,
        sizes: &[u64],
        kept: u32,
        log: &Path,
    ) -> Result<Self> {
        let place = &network.server;
        let folder = state::notes().join(format!("{}-site", place.0));
        for size in sizes {
            let octets = vec![b'x'; usize::try_from(*size).unwrap_or(0)];
            write_file(&folder.join(format!("root/o{size}")), &octets)?;
        }
        let file = folder.join("nginx.conf");
        write_file(&file, config(&folder, kept).as_bytes())?;
        let argv = ["nginx", "-c", &file.display().to_string()].map(str::to_owned);
        let served = Served::start(backend, place, &many_files(&argv), SITE_PORT, folder, log)?;
        // RFC 9411 section 4.3.1.1: source ports from 1024 on.
        let ports = ["sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535"];
        must(backend, &network.app, &ports)?;
        Ok(Self { backend, place, address: network.server_address, _served: served, asked: 0 })
    }

    /// Reads its counts.
    pub(crate) fn count(&mut self) -> Result<Count> {
        let url = format!("http://{}/counts", host_of(self.address));
        let said = must(self.backend, self.place, &["curl", "-sSgi", "--noproxy", "*", &url])?;
        self.asked += 1;
        let bad = || LabError::Parse { tool: "nginx", why: said.stdout.clone() };
        let seen = parse_counts(&said.stdout).ok_or_else(bad)?;
        let less = |count: u64, own: u64| count.checked_sub(own).ok_or_else(bad);
        Ok(Count {
            open: less(seen.open, 1)?,
            accepted: less(seen.accepted, self.asked)?,
            requests: less(seen.requests, self.asked)?,
            ..seen
        })
    }

    /// Reads them again and again in the sustain phase, which begins after the ramp-up phase and when so many connections
    /// are open, or do not come; from its beginning to its end.
    fn sustained(
        &mut self,
        load: &mut Running,
        (ramp_s, sustain_s): (f64, f64),
        connections: u64,
    ) -> Result<Vec<Count>> {
        let start = Instant::now();
        wait_until(start + Duration::from_secs_f64(ramp_s))?;
        let step_s = SAMPLE_S.min(sustain_s / SAMPLES);
        let mut first = self.count()?;
        while first.open < connections && start.elapsed().as_secs_f64() < ramp_s + RAMP_MORE_S {
            wait_until(Instant::now() + Duration::from_secs_f64(step_s))?;
            first = self.count()?;
        }
        let start = Instant::now();
        let mut counts = vec![first];
        for number in 1..=(sustain_s / step_s).round() as u32 {
            wait_until(start + Duration::from_secs_f64(f64::from(number) * step_s))?;
            if !load.alive() {
                break;
            }
            counts.push(self.count()?);
        }
        Ok(counts)
    }
}

/// Waits, unless the run is interrupted. The generators keep real time: a slow machine gets no more of it.
fn wait_until(then: Instant) -> Result<()> {
    loop {
        let left = then.saturating_duration_since(Instant::now());
        if interrupted() {
            return Err(LabError::Interrupted);
        }
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// Its whole configuration: one worker, files from a folder, and a page with its counts.
fn config(folder: &Path, kept: u32) -> String {
    let at = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!(" {name}_temp_path {at}/{name};\n"))
        .concat();
    format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid {at}/pid;\nerror_log stderr warn;\n\
         events {{ worker_connections 65536; }}\n\
         http {{\n access_log off;\n sendfile on;\n tcp_nopush on;\n open_file_cache max=64;\n\
         \x20keepalive_requests {kept};\n keepalive_timeout 3600s;\n{temporary}\
         \x20server {{ listen [::]:{SITE_PORT} ipv6only=off backlog=4096; root {at}/root;\n\
         \x20 location = /counts {{ stub_status; add_header X-Time $msec; }} }}\n}}\n"
    )
}

/// `X-Time: 1700000000.123`, and the page of nginx's `stub_status`.
fn parse_counts(said: &str) -> Option<Count> {
    let after = |head: &str| said.lines().find_map(|line| line.strip_prefix(head));
    let three: Vec<u64> = said
        .lines()
        .skip_while(|line| !line.starts_with("server accepts"))
        .nth(1)?
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [accepted, _, requests] = three[..] else { return None };
    Some(Count {
        at_s: after("X-Time:")?.trim().parse().ok()?,
        open: after("Active connections:")?.trim().parse().ok()?,
        accepted,
        requests,
    })
}

/// A command line with as many open files as the machine allows.
fn many_files(argv: &[String]) -> Vec<String> {
    let script = "ulimit -Sn \"$(ulimit -Hn)\"; exec \"$@\"";
    ["sh", "-c", script, "sh"].map(str::to_owned).into_iter().chain(argv.to_vec()).collect()
}

/// What one `wrk` did, as its script prints it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct Told {
    /// Transactions that were complete.
    pub(crate) requests: u64,
    /// Transactions that failed: no connection, a broken one, another status than 200, no answer in time.
    pub(crate) failed: u64,
}

/// What the highest rate was found by.
pub(crate) struct Peak {
    pub(crate) finished: Finished,
    pub(crate) told: Told,
    /// Counts of the sustain phase.
    pub(crate) counts: Vec<Count>,
}

/// The script of `wrk`: objects that take turns, and the last line of what it prints.
fn script(host: &str, sizes: &[u64], whole: bool, close: bool) -> String {
    // Who asks a proxy names the whole address (RFC 9112 section 3.2.2).
    let head = if whole { format!("http://{host}") } else { String::new() };
    let paths: Vec<String> = sizes.iter().map(|size| format!("\"{head}/o{size}\"")).collect();
    let close = if close { "wrk.headers[\"Connection\"] = \"close\"\n" } else { "" };
    format!(
        "wrk.headers[\"Host\"] = \"{host}\"\n{close}\
         local paths, all, next = {{ {} }}, {{}}, 0\n\
         function init(args)\n\
         \x20 for i, path in ipairs(paths) do all[i] = wrk.format(nil, path) end\n\
         end\n\
         function request()\n\
         \x20 next = next % #all + 1\n\
         \x20 return all[next]\n\
         end\n\
         function done(summary)\n\
         \x20 local e = summary.errors\n\
         \x20 local failed = e.connect + e.read + e.write + e.status + e.timeout\n\
         \x20 print(string.format('{{\"requests\":%d,\"failed\":%d}}', summary.requests, failed))\n\
         end\n",
        paths.join(", ")
    )
}

/// Finds the highest rate: so many connections at once, each of which asks again as soon as it has an answer.
pub(crate) fn peak(
    (backend, network): (&dyn Backend, &Network),
    site: &mut Site<'_>,
    (sizes, close): (&[u64], bool),
    (ramp_s, sustain_s): (f64, f64),
    name: &str,
) -> Result<Peak> {
    let host = host_of(network.target);
    let proxy = network.proxy()?;
    let text = script(&host, sizes, proxy.is_some(), close);
    let file = backend.deploy(name, text.as_bytes())?.display().to_string();
    let to = proxy.map_or_else(|| format!("http://{host}/"), |proxy| format!("http://{proxy}/"));
    // The end of the sustain phase comes before that of the load.
    let seconds = (ramp_s + sustain_s).ceil() + 1.0;
    let (connections, length) = (CONNECTIONS.to_string(), format!("{seconds}s"));
    let patience = format!("{PATIENCE_S}s");
    let argv = [
        "wrk",
        "-t",
        "1",
        "-c",
        &connections,
        "-d",
        &length,
        "--timeout",
        &patience,
        "-s",
        &file,
        &to,
    ];
    let argv = argv.map(str::to_owned);
    let mut running = backend.run(Some(&network.app), &argv, Output::Keep)?;
    let counts = site.sustained(&mut running, (ramp_s, sustain_s), 0)?;
    let finished = running.wait(Duration::from_secs_f64(seconds + 20.0))?.ok()?;
    let told = of_wrk(&finished.stdout)?;
    Ok(Peak { finished, told, counts })
}

fn of_wrk(said: &str) -> Result<Told> {
    let last = last_lines(said, 1);
    serde_json::from_str(&last)
        .map_err(|error| LabError::Parse { tool: "wrk", why: format!("{error}: {last}") })
}

/// Least, mean and greatest of some times, µs (RFC 9411 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) max: f64,
}

impl Times {
    fn of(all: &[f64]) -> Option<Self> {
        let max = all.iter().copied().reduce(f64::max)?;
        let min = all.iter().copied().fold(max, f64::min);
        Some(Self { min, mean: all.iter().sum::<f64>() / all.len() as f64, max })
    }
}

/// What transactions at a given rate took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Timed {
    /// Transactions that were to be made.
    pub(crate) due: u64,
    /// Transactions that were complete.
    pub(crate) done: u64,
    /// To the first octet of the answer.
    pub(crate) first: Times,
    /// To the last one.
    pub(crate) last: Times,
}

/// Times transactions at so many per second.
pub(crate) fn timed(
    (backend, network): (&dyn Backend, &Network),
    (size, close): (u64, bool),
    rate: f64,
    seconds: f64,
) -> Result<(Finished, Timed)> {
    let argv = hey(network.target, network.proxy()?, (size, close), rate, seconds);
    let limit = Duration::from_secs_f64(seconds + PATIENCE_S as f64 + 20.0);
    let finished = backend.run(Some(&network.app), &argv, Output::Keep)?.wait(limit)?.ok()?;
    let due = (rate * length(rate, seconds)).floor() as u64;
    let timed = of_hey(&finished.stdout, due)?;
    Ok((finished, timed))
}

/// Seconds for which `hey` runs: it forgets what is beyond a million transactions.
fn length(rate: f64, seconds: f64) -> f64 {
    seconds.min(REMEMBERED / rate)
}

fn hey(
    target: IpAddr,
    proxy: Option<SocketAddr>,
    (size, close): (u64, bool),
    rate: f64,
    seconds: f64,
) -> Vec<String> {
    let (length, workers) = (format!("{:.3}s", length(rate, seconds)), PACED.to_string());
    let (each, patience) = (format!("{:.3}", rate / PACED as f64), PATIENCE_S.to_string());
    let url = format!("http://{}/o{size}", host_of(target));
    let mut argv: Vec<String> =
        ["hey", "-z", &length, "-c", &workers, "-q", &each, "-t", &patience, "-o", "csv"]
            .map(str::to_owned)
            .into();
    argv.push("-disable-compression".into());
    if close {
        argv.push("-disable-keepalive".into());
    }
    if let Some(proxy) = proxy {
        argv.extend(["-x".to_owned(), format!("http://{proxy}")]);
    }
    argv.push(url);
    argv
}

/// A line for each transaction: `response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset`,
/// times in seconds. The time to the first octet is that of the connection, the request and the delay of its answer.
fn of_hey(said: &str, due: u64) -> Result<Timed> {
    let bad = |why: String| LabError::Parse { tool: "hey", why };
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for line in said.lines().skip_while(|line| !line.starts_with("response-time,")).skip(1) {
        let fields: Vec<f64> = line.split(',').filter_map(|field| field.parse().ok()).collect();
        let [all, dial, _, write, delay, _, status, _] = fields[..] else {
            return Err(bad(format!("not understood: {line}")));
        };
        if status == 200.0 {
            first.push(1e6 * (dial + write + delay));
            last.push(1e6 * all);
        }
    }
    let both = Times::of(&first).zip(Times::of(&last));
    let (first_octet, last_octet) = both.ok_or_else(|| {
        // It says nothing of transactions that fail.
        LabError::Failed(format!("none of {due} transactions was complete"))
    })?;
    Ok(Timed { due, done: last.len() as u64, first: first_octet, last: last_octet })
}

/// What became of many connections.
pub(crate) struct Held {
    pub(crate) finished: Finished,
    /// Counts of the sustain phase.
    pub(crate) counts: Vec<Count>,
    /// Transactions that were to be made, and those of them that failed.
    pub(crate) due: u64,
    pub(crate) failed: u64,
}

/// Opens so many connections in the ramp-up phase. Each carries its transactions at a steady pace, the last of them after
/// the sustain phase.
pub(crate) fn held(
    (backend, network): (&dyn Backend, &Network),
    site: &mut Site<'_>,
    size: u64,
    connections: u32,
    (ramp_s, sustain_s): (f64, f64),
) -> Result<Held> {
    let argv = many_files(&h2load(network.target, size, connections, (ramp_s, sustain_s)));
    let mut running = backend.run(Some(&network.app), &argv, Output::Keep)?;
    let counts = site.sustained(&mut running, (ramp_s, sustain_s), connections.into())?;
    let pace = between(ramp_s, sustain_s);
    let limit = Duration::from_secs_f64(ramp_s + 2.0 * pace + 20.0);
    let finished = match running.wait(limit) {
        Err(error @ LabError::Timeout { .. }) => {
            let why = format!("connections do not come to an end: {error}");
            return Err(LabError::Failed(why));
        }
        other => other?.ok()?,
    };
    let due = u64::from(connections) * u64::from(KEPT);
    let failed = due.saturating_sub(of_h2load(&finished.stdout)?);
    Ok(Held { finished, counts, due, failed })
}

/// Seconds between two transactions of a connection that lasts longer than both phases.
fn between(ramp_s: f64, sustain_s: f64) -> f64 {
    (ramp_s + RAMP_MORE_S + sustain_s + 2.0) / f64::from(KEPT - 1)
}

fn h2load(
    target: IpAddr,
    size: u64,
    connections: u32,
    (ramp_s, sustain_s): (f64, f64),
) -> Vec<String> {
    // In steps of a tenth of a second; the last ones are open before the phase ends.
    let steps = (8.0 * ramp_s).max(1.0);
    let each = (f64::from(connections) / steps).ceil();
    let pace = 1.0 / between(ramp_s, sustain_s);
    [
        "h2load",
        "--h1",
        "-t",
        "1",
        "-c",
        &connections.to_string(),
        "-n",
        &(u64::from(connections) * u64::from(KEPT)).to_string(),
        "-r",
        &each.to_string(),
        "--rate-period",
        "100ms",
        "--rps",
        &format!("{pace:.4}"),
        &format!("http://{}/o{size}", host_of(target)),
    ]
    .map(str::to_owned)
    .into()
}

/// Transactions that were answered with a status of 2xx: `status codes: 100 2xx, 0 3xx, 0 4xx, 0 5xx`.
fn of_h2load(said: &str) -> Result<u64> {
    let line = said.lines().find_map(|line| line.trim().strip_prefix("status codes:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).ok_or_else(|| {
        LabError::Parse { tool: "h2load", why: format!("not understood: {}", last_lines(said, 3)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nginx_counts_is_read_with_its_time() {
        let said = "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nX-Time: 1795799453.847\r\n\r\n\
                    Active connections: 33 \nserver accepts handled requests\n 45707 45707 88721 \n\
                    Reading: 0 Writing: 1 Waiting: 32 \n";
        let count = Count { at_s: 1_795_799_453.847, open: 33, accepted: 45_707, requests: 88_721 };
        assert_eq!(parse_counts(said), Some(count));
        assert_eq!(parse_counts("HTTP/1.1 404 Not Found\r\n\r\n"), None);
    }

    #[test]
    fn objects_take_turns_and_a_proxy_is_asked_for_the_whole_address() {
        let direct = script("[2001:db8::1]", &[1024, 2048], false, true);
        assert!(direct.contains("{ \"/o1024\", \"/o2048\" }") && direct.contains("\"close\""));
        let proxied = script("a.example", &[1024], true, false);
        assert!(proxied.contains("{ \"http://a.example/o1024\" }") && !proxied.contains("close"));
        let told = of_wrk("Requests/sec: 1\nTransfer/sec: 2\n{\"requests\":7,\"failed\":1}\n");
        assert_eq!(told.unwrap(), Told { requests: 7, failed: 1 });
        assert!(of_wrk("unable to connect").is_err());
        assert_eq!(MIXED.iter().sum::<u64>() / 10, 53_780);
    }

    #[test]
    fn times_count_from_the_start_of_the_connection() {
        let said = "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset\n\
                    0.0031,0.0005,0.0000,0.0001,0.0024,0.0001,200,0.0295\n\
                    0.0011,0.0000,0.0000,0.0001,0.0004,0.0006,200,0.0326\n\
                    0.0001,0.0000,0.0000,0.0000,0.0001,0.0000,502,0.0330\n";
        let timed = of_hey(said, 3).unwrap();
        assert_eq!((timed.due, timed.done), (3, 2));
        assert!((timed.first.mean - 1750.0).abs() < 1e-6 && (timed.first.min - 500.0).abs() < 1e-6);
        assert!((timed.last.mean - 2100.0).abs() < 1e-6 && (timed.last.max - 3100.0).abs() < 1e-6);
        assert!(of_hey(said.lines().next().unwrap(), 3).unwrap_err().is_the_mechanisms());
        assert!(!of_hey("response-time,x\nnonsense\n", 3).unwrap_err().is_the_mechanisms());
    }

    #[test]
    fn a_million_transactions_are_remembered() {
        assert_eq!((length(5000.0, 60.0), length(5000.0, 300.0)), (60.0, 200.0));
        let argv = hey("192.0.2.1".parse().unwrap(), None, (1024, true), 4000.0, 3.0);
        assert!(argv.windows(2).any(|two| two == ["-q", "250.000"]), "{argv:?}");
        assert!(argv.windows(2).any(|two| two == ["-z", "3.000s"]), "{argv:?}");
        assert!(argv.contains(&"-disable-keepalive".to_owned()));
    }

    #[test]
    fn connections_outlast_both_phases() {
        assert!(9.0 * between(1.0, 3.0) >= 1.0 + 3.0 + 1.9);
        let argv = h2load("192.0.2.1".parse().unwrap(), 1024, 10_000, (1.0, 3.0));
        assert!(argv.windows(2).any(|two| two == ["-n", "100000"]), "{argv:?}");
        assert!(argv.windows(2).any(|two| two == ["-r", "1250"]), "{argv:?}");
        let said = "requests: 100 total, 100 started, 98 done, 97 succeeded, 3 failed\n\
                    status codes: 97 2xx, 0 3xx, 1 4xx, 0 5xx\n";
        assert_eq!(of_h2load(said).unwrap(), 97);
        assert!(of_h2load("could not resolve").is_err());
    }
}
