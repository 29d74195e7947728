//! The highest rate of transactions, by `wrk`.

use std::time::Duration;

use serde::Deserialize;

use super::{CONNECTIONS, Count, PATIENCE_S, Site};
use crate::backend::Backend;
use crate::error::{LabError, Result};
use crate::load::fetch::host_of;
use crate::process::{Finished, Output, last_lines};
use crate::topology::Network;

/// What one `wrk` did, as its script prints it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct Told {
    /// Transactions that were complete, in time and with a status below 400.
    pub(crate) requests: u64,
    /// Transactions that failed: no connection, a broken one, a status of 400 or more, an answer that came too late. One that
    /// never ends is in neither count.
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
         \x20 local complete = summary.requests - e.status - e.timeout\n\
         \x20 print(string.format('{{\"requests\":%d,\"failed\":%d}}', complete, failed))\n\
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_take_turns_and_a_proxy_is_asked_for_the_whole_address() {
        let direct = script("[2001:db8::1]", &[1024, 2048], false, true);
        assert!(direct.contains("{ \"/o1024\", \"/o2048\" }") && direct.contains("\"close\""));
        let proxied = script("a.example", &[1024], true, false);
        assert!(proxied.contains("{ \"http://a.example/o1024\" }") && !proxied.contains("close"));
        let told = of_wrk("Requests/sec: 1\nTransfer/sec: 2\n{\"requests\":7,\"failed\":1}\n");
        assert_eq!(told.unwrap(), Told { requests: 7, failed: 1 });
        assert!(of_wrk("unable to connect").is_err());
        assert_eq!(super::super::MIXED.iter().sum::<u64>() / 10, 53_780);
    }
}
