//! The translation prefix: configured, or discovered by DNS (RFC 7050) and kept in a file until it expires.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use fordway_discovery::{Found, Settings, Watcher, remaining};
use fordway_net::privilege;
use fordway_xlat::addr::Pool6;
use serde::{Deserialize, Serialize};

use crate::request::{Network, Pref64};
use crate::{Code, Failure, Result};

/// How long name servers are waited for. A runtime has other pods to make.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the file holds.
#[derive(Serialize, Deserialize)]
struct Kept {
    prefix: String,
    /// In seconds of the clock that goes on while the host sleeps, from its start; the file does not outlive that.
    until: u64,
}

/// The prefix of a network. Files are in the folder `run`, and their names end with `node`.
pub(crate) fn find(network: &Network, run: &Path, node: &str) -> Result<Pool6> {
    if let Pref64::Fixed(prefix) = network.pref64 {
        return Ok(prefix);
    }
    let file = run.join(format!("pref64-{:016x}-{node}", network.number()));
    let kept = read(&file);
    if let Some((prefix, left)) = kept
        && !left.is_zero()
    {
        return Ok(prefix);
    }
    match discover(network, run) {
        Ok((prefix, until)) => {
            write(&file, &Kept { prefix: prefix.to_string(), until: until.as_secs() })?;
            Ok(prefix)
        }
        // An expired prefix is better than none while name servers do not answer.
        Err(failure) => kept.map(|(prefix, _)| prefix).ok_or(failure),
    }
}

/// The prefix in a file, and for how long it is valid still.
fn read(file: &Path) -> Option<(Pool6, Duration)> {
    let kept: Kept = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    Some((kept.prefix.parse().ok()?, remaining(Duration::from_secs(kept.until))))
}

/// Replaces the file at once, so that no reader sees a part of it.
fn write(file: &Path, kept: &Kept) -> Result<()> {
    let text = serde_json::to_vec(kept).unwrap_or_default();
    replace(file, &text)
}

fn replace(file: &Path, text: &[u8]) -> Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(name);
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, file));
    written.map_err(|error| {
        Failure::new(Code::Io, format!("cannot write {}", file.display()))
            .details(error.to_string())
    })
}

/// Asks the name servers, and gives the prefix and the time at which it expires.
fn discover(network: &Network, run: &Path) -> Result<(Pool6, Duration)> {
    // Pods' routers may differ from the node's, so only the name servers are asked.
    let settings = Settings { advertisements: false, ..Settings::default() };
    let failed = |error: fordway_discovery::Error| {
        Failure::new(Code::Later, "the translation prefix can't be discovered")
            .details(error.to_string())
    };
    let watcher = Watcher::open(settings).map_err(failed)?;
    let found = if network.nameservers.is_empty() {
        look(watcher)?
    } else {
        let file = run.join(format!("resolv-{:016x}-{}", network.number(), std::process::id()));
        replace(&file, resolv_conf(&network.nameservers).as_bytes())?;
        let found = look(watcher.resolv_conf(&file));
        let _ = fs::remove_file(&file);
        found?
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

fn resolv_conf(servers: &[IpAddr]) -> String {
    servers.iter().map(|server| format!("nameserver {server}\n")).collect()
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

/// Removes the files of a node without pods.
pub(crate) fn forget(run: &Path, node: &str) {
    let Ok(entries) = fs::read_dir(run) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("pref64-") && name.contains(node) {
            // One that stays is out of date at most.
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_prefix_is_read_until_it_expires() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pref64-1-node");
        assert_eq!(read(&file), None);
        let kept = |until| Kept { prefix: "2001:db8:64::/96".to_owned(), until };
        write(&file, &kept(u64::MAX)).unwrap();
        let (prefix, left) = read(&file).unwrap();
        assert_eq!(prefix.to_string(), "2001:db8:64::/96");
        assert!(!left.is_zero());
        write(&file, &kept(0)).unwrap();
        assert!(read(&file).unwrap().1.is_zero());
        fs::write(&file, "{").unwrap();
        assert_eq!(read(&file), None);
        forget(folder.path(), "node");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn name_servers_of_the_configuration() {
        let servers = ["2001:db8::53".parse().unwrap(), "192.0.2.53".parse().unwrap()];
        assert_eq!(resolv_conf(&servers), "nameserver 2001:db8::53\nnameserver 192.0.2.53\n");
    }
}
