//! A host that an automatic CLAT runs on, and a network that it comes into.
//!
//! ```text
//! laptop c0 (addresses by advertisement) ──── s0 router, 2001:db8:64::198.51.100.1 and others
//! ```

use serde_json::Value;

use super::advertiser::{Advertiser, Content};
use super::daemon::{Daemon, RunDir};
use super::dns::{Upstream, Zone};
use super::host::{assert_same, snapshot};
use super::netns::Netns;
use fordway_testhost::{poll, poll_or};

/// What stands for the server's IPv4 address in the network's first prefix, and in another.
pub(crate) const PREF64: &str = "2001:db8:64::/96";
pub(crate) const OTHER_PREF64: &str = "2001:db8:65::/96";

/// The server as applications on the laptop write it.
pub(crate) const SERVER_V4: &str = "198.51.100.1";

/// The network's own prefix, and another.
pub(crate) const NET: &str = "2001:db8:1::/64";
pub(crate) const OTHER_NET: &str = "2001:db8:2::/64";

/// The network's resolver, if it has one.
pub(crate) const RESOLVER: &str = "2001:db8:1::1";

pub(crate) struct Laptop {
    pub(crate) host: Netns,
    pub(crate) router: Netns,
    pub(crate) run: RunDir,
}

impl Laptop {
    /// Nobody advertises anything yet.
    pub(crate) fn new() -> Laptop {
        let (host, router) = (Netns::new("laptop"), Netns::new("router"));
        host.link("c0", &router, "s0");
        // What it says of itself when it is asked for its address: hosts have no default route by others (RFC 4861
        // section 7.2.5).
        router.sysctl("net.ipv6.conf.all.forwarding", "1");
        router.configure(&[
            "addr add 2001:db8:1::1/64 dev s0",
            "addr add 2001:db8:2::1/64 dev s0",
            "addr add 2001:db8:64::c633:6401/128 dev s0",
            "addr add 2001:db8:65::c633:6401/128 dev s0",
        ]);
        Laptop { host, router, run: RunDir::in_memory() }
    }

    /// The usual network is there from now on.
    pub(crate) fn advertise(&self) -> Advertiser {
        Advertiser::start(&self.router, "s0", Content::new(NET, &[PREF64]))
    }

    /// The network's resolver, at [`RESOLVER`].
    pub(crate) fn resolver(&self, zone: Zone) -> Upstream {
        Upstream::start(&self.router, &format!("[{RESOLVER}]:53"), zone)
    }

    /// Starts an automatic CLAT.
    pub(crate) fn start(&self, more: &str) -> Daemon<'_> {
        let arguments = format!("clat --pref64 auto --queues 1 {more}");
        Daemon::start(&self.run, &self.host, &arguments)
    }

    /// The host must be as it was, but for what the network has brought, which is not ours to take away.
    #[track_caller]
    pub(crate) fn assert_as_before(&self, before: &[String]) {
        let is_told = |line: &&String| {
            let is_ours = line.contains("clat0") || line.contains("proxy");
            !is_ours && (line.contains("2001:db8:1:") || line.contains("proto ra"))
        };
        // The kernel takes no default route while it forwards, and takes the next one that it is told.
        let missing = || {
            let now = snapshot(&self.host);
            let missing = before.iter().filter(is_told).find(|line| !now.contains(line));
            missing.cloned().ok_or(now)
        };
        let mut now = poll_or(
            || missing().err(),
            || format!("the network has told all again, but for {:?}", missing().ok()),
        );
        now.retain(|line| before.contains(line) || !is_told(&line));
        assert_same(&now, before);
    }

    /// Pings until an answer comes.
    pub(crate) fn reaches_server(&self) {
        poll("the server answers", || {
            let output = self.host.try_run(&format!("ping -n -c 1 -W 1 {SERVER_V4}"));
            output.status.success().then_some(())
        });
    }
}

/// What a DNS64 server says of `ipv4only.arpa` in a network with this prefix.
pub(crate) fn dns64(pref64: &str) -> Zone {
    let front = pref64.strip_suffix("/96").unwrap();
    Zone::new("ipv4only.arpa")
        .a("ipv4only.arpa", "192.0.0.170")
        .a("ipv4only.arpa", "192.0.0.171")
        .aaaa("ipv4only.arpa", &format!("{front}c000:aa"))
        .aaaa("ipv4only.arpa", &format!("{front}c000:ab"))
}

/// What `fordway status` says of it.
pub(crate) fn automatic(daemon: &Daemon<'_>) -> Value {
    daemon.status()["automatic"][0].clone()
}

/// Waits until `done` holds of it.
pub(crate) fn until(daemon: &Daemon<'_>, what: &str, done: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        poll(what, || {
            last = automatic(daemon);
            done(&last).then(|| last.clone())
        })
    }));
    found.unwrap_or_else(|_| panic!("{what}: {last:#}"))
}

/// Waits until it is in a state.
pub(crate) fn until_state(daemon: &Daemon<'_>, state: &str) -> Value {
    until(daemon, state, |status| status["state"] == state)
}

/// Waits until the CLAT waits for this reason, which need not be the first: kernel and daemon hear of a change one after
/// the other.
pub(crate) fn until_waiting(daemon: &Daemon<'_>, reason: &str) -> Value {
    until(daemon, reason, |status| status["state"] == "waiting" && status["reason"] == reason)
}

/// The CLAT's IPv6 address in a status.
pub(crate) fn v6(status: &Value) -> String {
    status["v6"].as_str().unwrap_or_else(|| panic!("{status:#}")).to_owned()
}
