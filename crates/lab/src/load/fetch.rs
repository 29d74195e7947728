//! Objects by HTTP: nginx at the server, and in front of the mechanism `wrk`, which everybody knows, or for one
//! long object through a tunnel, `curl`.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use fordway_data::addresses::SITE_PORT;
use fordway_data::files::write_file;
use fordway_data::spec::Fetch;

use super::nginx::Nginx;
use crate::backend::{Backend, Served};
use crate::error::{LabError, Result};
use crate::process::{Finished, Output};
use crate::state;
use crate::topology::Network;

/// Octets of a small object, and of a large one.
const SMALL: u64 = 1024;
/// See [`SMALL`].
const LARGE: u64 = 1 << 20;
/// Octets of an object that takes long; it is one hole and takes no room.
const ENDLESS: u64 = 4 << 30;
/// Octets of an object whose answer is one small packet, and of one that takes a dozen full packets.
const TINY: u64 = 64;
/// See [`TINY`].
const PAGE: u64 = 16_384;
/// Requests that a connection is kept for: practically all.
pub(crate) const KEPT: u32 = 100_000_000;
/// The same as Apache's own default (MaxKeepAliveRequests), which study B counts.
pub(crate) const KEPT_BY_APACHE: u32 = 100;
/// Connections that are kept: of small objects, and of large ones.
const CONNECTIONS: [u32; 2] = [32, 8];

/// What one load did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fetched {
    /// Requests answered.
    pub(crate) requests: u64,
    /// Octets of content that came.
    pub(crate) octets: u64,
    /// For how long.
    pub(crate) seconds: f64,
    /// Requests that failed, or were answered with an error.
    pub(crate) failed: u64,
}

impl Fetched {
    /// Thousand requests per second, or Gbit/s of content.
    pub(crate) fn rate(&self, what: Fetch) -> f64 {
        match what {
            Fetch::Small => self.requests as f64 / self.seconds / 1e3,
            Fetch::Large | Fetch::Tunnel => self.octets as f64 * 8.0 / self.seconds / 1e9,
        }
    }
}

/// Programs of this load that are not installed, with the line that installs them.
pub(crate) fn missing() -> Option<String> {
    super::to_install(&[("wrk", "wrk"), ("curl", "curl"), ("nginx", "nginx-light")])
}

/// Starts nginx at the server, until dropped; it closes a connection after so many requests.
pub(crate) fn serve(
    backend: &dyn Backend,
    network: &Network,
    kept: u32,
    log: &Path,
) -> Result<Served> {
    let folder = state::notes().join(format!("{}-origin", network.server.0));
    let octets = |length: u64| vec![b'x'; usize::try_from(length).unwrap_or(0)];
    let study = ("study", super::ab::PAGE);
    let objects = [("tiny", TINY), ("page", PAGE), ("small", SMALL), ("large", LARGE), study];
    for (name, length) in objects {
        write_file(&folder.join("root").join(name), &octets(length))?;
    }
    let endless = folder.join("root/endless");
    std::fs::File::create(&endless)
        .and_then(|file| file.set_len(ENDLESS))
        .map_err(LabError::file(&endless))?;
    let file = folder.join("nginx.conf");
    let location = format!("/sink {{ return 200 \"{}\"; }}", "x".repeat(64));
    let listen = "";
    let nginx = Nginx { connections: 4096, kept, idle_s: 75, listen, location: &location };
    write_file(&file, nginx.config(&folder).as_bytes())?;
    let argv = ["nginx", "-c", &file.display().to_string()].map(str::to_owned);
    Served::start(backend, &network.server, &argv, SITE_PORT, folder, log)
}

/// The host of an address, as it stands in a request.
pub(super) fn host_of(target: IpAddr) -> String {
    if target.is_ipv6() { format!("[{target}]") } else { target.to_string() }
}

/// The script of `wrk`: what every request is. Who asks a proxy names the whole address (RFC 9112 section 3.2.2).
fn script(host: &str, path: &str, whole: bool) -> String {
    let target = if whole { format!("http://{host}{path}") } else { path.to_owned() };
    format!("wrk.path = \"{target}\"\nwrk.headers[\"Host\"] = \"{host}\"\n")
}

/// Fetches for so long.
pub(crate) fn measure(
    backend: &dyn Backend,
    network: &Network,
    what: Fetch,
    seconds: f64,
    name: &str,
) -> Result<(Finished, Fetched)> {
    let host = host_of(network.target);
    let proxy = network.proxy()?;
    let limit = Duration::from_secs_f64(seconds + 20.0);
    if what == Fetch::Tunnel {
        let mut argv: Vec<String> =
            ["curl", "-sS", "-g", "-o", "/dev/null", "--max-time", &seconds.to_string()]
                .map(str::to_owned)
                .into();
        argv.extend(
            ["-w", "%{http_code} %{size_download} %{time_total} %{time_starttransfer}"]
                .map(str::to_owned),
        );
        if let Some(proxy) = proxy {
            argv.extend(["--proxytunnel".to_owned(), "--proxy".into(), format!("http://{proxy}")]);
        }
        argv.push(format!("http://{host}/endless"));
        let finished = backend.run(Some(&network.app), &argv, Output::Keep)?.wait(limit)?;
        let fetched = of_curl(&finished.stdout, &finished.stderr)?;
        return Ok((finished, fetched));
    }
    let (path, connections) = match what {
        Fetch::Small => ("/small", CONNECTIONS[0]),
        _ => ("/large", CONNECTIONS[1]),
    };
    let file = backend
        .deploy(
            &format!("{name}-{}.lua", what.name()),
            script(&host, path, proxy.is_some()).as_bytes(),
        )?
        .display()
        .to_string();
    let to = match proxy {
        Some(proxy) => format!("http://{proxy}/"),
        None => format!("http://{host}/"),
    };
    let (connections, length) = (connections.to_string(), format!("{}s", seconds.ceil().max(1.0)));
    let argv = ["wrk", "-t", "1", "-c", &connections, "-d", &length, "-s", &file, &to];
    let argv = argv.map(str::to_owned);
    let finished = backend.run(Some(&network.app), &argv, Output::Keep)?.wait(limit)?.ok()?;
    let object = if what == Fetch::Small { SMALL } else { LARGE };
    let fetched = of_wrk(&finished.stdout, object)?;
    Ok((finished, fetched))
}

/// `  105432 requests in 1.00s, 123.45MB read`, and the lines that count failures.
fn of_wrk(said: &str, object: u64) -> Result<Fetched> {
    let bad = || LabError::Parse { tool: "wrk", why: format!("not understood: {}", said.trim()) };
    let line = said.lines().find(|line| line.contains(" requests in ")).ok_or_else(bad)?;
    let (requests, rest) = line.trim().split_once(" requests in ").ok_or_else(bad)?;
    let requests: u64 = requests.trim().parse().map_err(|_| bad())?;
    let length = rest.split(',').next().unwrap_or_default();
    let number = length.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &length[number.len()..] {
        "s" => 1.0,
        "ms" => 1e-3,
        "m" => 60.0,
        _ => return Err(bad()),
    };
    let seconds = unit * number.parse::<f64>().map_err(|_| bad())?;
    let digits = |line: &str| -> u64 {
        line.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u64>().ok()).sum()
    };
    let of = |head: &str| {
        said.lines().find_map(|line| line.trim().strip_prefix(head).map(digits)).unwrap_or(0)
    };
    let failed = of("Socket errors:") + of("Non-2xx or 3xx responses:");
    if seconds <= 0.0 {
        return Err(bad());
    }
    Ok(Fetched { requests, octets: requests * object, seconds, failed })
}

/// `200 123456 1.000 0.010`: status, octets, seconds in all, seconds to the first octet.
fn of_curl(said: &str, errors: &str) -> Result<Fetched> {
    let words: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [status, octets, all, first] = words[..] else {
        return Err(LabError::Parse { tool: "curl", why: format!("{said} {}", errors.trim()) });
    };
    if status != 200.0 || all <= first {
        let why = format!("status {status}, {octets} octets: {}", errors.trim());
        return Err(LabError::Parse { tool: "curl", why });
    }
    Ok(Fetched { requests: 1, octets: octets as u64, seconds: all - first, failed: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_says_is_read_with_its_failures() {
        let said = "Running 1s test @ http://[2001:db8::1]/\n  1 threads and 32 connections\n\
                    \x20 20500 requests in 1.03s, 24.00MB read\n\
                    \x20 Socket errors: connect 0, read 3, write 1, timeout 0\n\
                    \x20 Non-2xx or 3xx responses: 7\nRequests/sec:  19902.91\n";
        let fetched = of_wrk(said, SMALL).unwrap();
        assert_eq!((fetched.requests, fetched.seconds, fetched.failed), (20_500, 1.03, 11));
        assert!((fetched.rate(Fetch::Small) - 19.9).abs() < 0.01);
        let short = of_wrk("  10 requests in 500.00ms, 1.00MB read", LARGE).unwrap();
        assert_eq!((short.seconds, short.octets, short.failed), (0.5, 10 << 20, 0));
        assert!(of_wrk("unable to connect", SMALL).is_err());
    }

    #[test]
    fn what_curl_says_counts_from_the_first_octet() {
        let fetched = of_curl("200 1000000000 2.500000 0.500000", "").unwrap();
        assert_eq!(fetched.rate(Fetch::Tunnel), 4.0);
        let error = of_curl("403 10 0.2 0.1", "curl: (56) no").unwrap_err().to_string();
        assert!(error.contains("403") && error.contains("(56)"), "{error}");
        assert!(of_curl("", "curl: not there").is_err());
    }

    #[test]
    fn a_proxy_is_asked_for_the_whole_address() {
        assert!(script("a.example", "/small", true).contains("path = \"http://a.example/small\""));
        assert!(script("a.example", "/small", false).contains("path = \"/small\""));
    }
}
