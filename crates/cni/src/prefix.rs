//! The translation prefix: configured, or discovered by DNS (RFC 7050) and kept in a file until it expires.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use fordway_discovery::{Found, Settings, Watcher, after, remaining};
use fordway_net::privilege;
use fordway_xlat::addr::Pool6;
use serde::{Deserialize, Serialize};

use crate::node::Node;
use crate::request::{Network, Pref64};
use crate::{Code, Command, Failure, Request, Result, run};

/// How long name servers are waited for. A runtime has other pods to make.
const PATIENCE: Duration = Duration::from_secs(5);

/// For how long an expired prefix is used before silent name servers are asked again.
const EXTENSION: Duration = Duration::from_secs(60);

/// Where name servers listen.
const DNS: u16 = 53;

/// What the file holds.
#[derive(Serialize, Deserialize)]
struct Kept {
    prefix: String,
    /// In seconds of the clock that goes on while the host sleeps, from its start; the file does not outlive that.
    until: u64,
}

/// The prefix of a request's network. A discovered one is kept in a file, which goes with the node's last pod. So on a node
/// without pods none is kept, unless an ADD makes one.
pub(crate) fn find(request: &Request, node: &Node) -> Result<Pool6> {
    let network = &request.network;
    if let Pref64::Fixed(prefix) = network.own.pref64 {
        return Ok(prefix);
    }
    let file = run::prefix_file(network.number(), &node.name);
    let keep = |prefix: Pool6, until: Duration| {
        let has_pods =
            || Ok::<_, Failure>(request.command == Command::Add || node.pods()?.is_some());
        if !has_pods()? {
            return Ok(());
        }
        let kept = Kept { prefix: prefix.to_string(), until: until.as_secs() };
        let _lock = run::lock(&node.name)?;
        if !has_pods()? {
            run::forget(&node.name);
            return Ok(());
        }
        run::replace(&file, &serde_json::to_vec(&kept).unwrap_or_default())
    };
    let kept = read(&file);
    if let Some((prefix, left)) = kept
        && !left.is_zero()
    {
        return Ok(prefix);
    }
    match (discover(network), kept) {
        (Ok((prefix, until)), _) => keep(prefix, until).map(|()| prefix),
        // An expired prefix is better than none while name servers do not answer.
        (Err(_), Some((prefix, _))) => keep(prefix, after(EXTENSION)).map(|()| prefix),
        (Err(failure), None) => Err(failure),
    }
}

/// The prefix in a file, and for how long it is valid still.
fn read(file: &Path) -> Option<(Pool6, Duration)> {
    let kept: Kept = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    Some((kept.prefix.parse().ok()?, remaining(Duration::from_secs(kept.until))))
}

/// Asks the name servers, and gives the prefix and the time at which it expires.
fn discover(network: &Network) -> Result<(Pool6, Duration)> {
    // Pods' routers may differ from the node's, so only the name servers are asked.
    let settings = Settings { advertisements: false, ..Settings::default() };
    let failed = |error: fordway_discovery::Error| {
        Failure::new(Code::Later, "the translation prefix can't be discovered")
            .details(error.to_string())
    };
    let watcher = Watcher::open(settings).map_err(failed)?;
    let found = if network.own.nameservers.is_empty() {
        look(watcher)?
    } else {
        let servers = network.own.nameservers.iter().map(|server| SocketAddr::new(*server, DNS));
        look(watcher.resolvers(servers.collect()))?
    };
    let prefix = found.preferred(None).ok_or_else(|| {
        Failure::new(Code::Later, "no name server tells a translation prefix (RFC 7050)").details(
            "pref64 = \"auto\" needs a DNS64 server; name it by nameservers, or set pref64 to the prefix",
        )
    })?;
    // Without an end it is looked at again at the next start of the host.
    let until = prefix.until.unwrap_or(Duration::from_secs(u64::MAX));
    Ok((prefix.pool6, until))
}

/// Looks once, in a thread without capabilities: it parses what others send.
fn look(watcher: Watcher) -> Result<Found> {
    let look = move || -> Result<Found> {
        privilege::drop_all_of_thread()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(Code::Io, error.to_string()))?;
        // A kernel need not have seccomp.
        let _ = privilege::confine();
        let looked = runtime.block_on(watcher.look(PATIENCE));
        let failed = |error: fordway_discovery::Error| Failure::new(Code::Later, error.to_string());
        looked.map(|(found, _)| found).map_err(failed)
    };
    let panicked = |_| Err(Failure::new(Code::Io, "discovery of the prefix panicked"));
    thread::spawn(look).join().unwrap_or_else(panicked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_prefix_is_read_until_it_expires() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pref64");
        assert_eq!(read(&file), None);
        let write = |until| {
            let kept = Kept { prefix: "2001:db8:64::/96".to_owned(), until };
            run::replace(&file, &serde_json::to_vec(&kept).unwrap()).unwrap();
        };
        write(u64::MAX);
        let (prefix, left) = read(&file).unwrap();
        assert_eq!(prefix.to_string(), "2001:db8:64::/96");
        assert!(!left.is_zero());
        write(0);
        assert!(read(&file).unwrap().1.is_zero());
        fs::write(&file, "{").unwrap();
        assert_eq!(read(&file), None);
    }
}
