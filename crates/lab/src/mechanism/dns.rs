//! What DNS64 servers have in common: where they stand, whom they ask, and what they may take.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use fordway_data::addresses::NAT64_POOL6;
use fordway_data::spec::{self, Kind, MechanismSpec, Pin, Processors};
use fordway_load::dns::PORT;

use super::Context;
use crate::error::Result;
use crate::host::cpu::processors;
use crate::process::find_program;

/// Octets that a server may keep answers in: the same for all.
pub(super) const CACHE_MIB: u32 = 128;

/// A name server's part in a network.
#[derive(Debug, Clone)]
pub(super) struct Role {
    /// The address that it listens to.
    pub(super) listen: Ipv6Addr,
    /// Whom it forwards to.
    pub(super) upstream: IpAddr,
    /// What it synthesises with; without it, it only forwards.
    pub(super) prefix: Option<&'static str>,
    /// Threads.
    pub(super) threads: usize,
    /// What its command line begins with.
    pub(super) before: Vec<String>,
}

impl Role {
    /// The part that an arm's name server has.
    pub(super) fn of(context: Context<'_>) -> Result<Self> {
        let SocketAddr::V6(listen) = context.network.resolver()? else {
            unreachable!("the box in the middle is asked by IPv6")
        };
        let placement = Placement::of(context.spec.threads, context.backend.pin());
        let synthesises = context.spec.kind == Kind::Dns64;
        Ok(Self {
            listen: *listen.ip(),
            upstream: context.network.server_address,
            prefix: synthesises.then_some(NAT64_POOL6),
            threads: placement.threads,
            before: placement.server,
        })
    }

    /// The whole command line, for a program that the machine may confine to the folders of its package
    /// (AppArmor): the lab's own folders are others.
    pub(super) fn command(&self, argv: &[&str]) -> Vec<String> {
        let enabled = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
        let confined = enabled.is_ok_and(|text| text.starts_with('Y'));
        let mut all = self.before.clone();
        if confined && find_program("aa-exec").is_some() {
            all.extend(["aa-exec", "-p", "unconfined", "--"].map(str::to_owned));
        }
        all.extend(argv.iter().map(ToString::to_string));
        all
    }

    /// Where it is asked, as `ADDRESS PORT` or the like.
    pub(super) fn port(&self) -> u16 {
        PORT
    }
}

/// The arm as that of its name server; `None` when it has none.
pub(crate) fn as_resolver(arm: &MechanismSpec) -> Option<MechanismSpec> {
    let implementation = arm.resolver.clone()?;
    // Beside a translator it synthesises; on a path without one it only forwards.
    let kind = if arm.kind.needs_dns64() { Kind::Dns64 } else { Kind::Native };
    Some(MechanismSpec {
        implementation,
        kind,
        engine: None,
        attach: None,
        threads: Some(1),
        ..arm.clone()
    })
}

/// Which processors a server and its tester run on: apart, where the server has fewer threads than there
/// are processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Threads of the server.
    pub(crate) threads: usize,
    /// What the server's command line begins with.
    pub(crate) server: Vec<String>,
    /// What the tester's begin with.
    pub(crate) tester: Vec<String>,
}

impl Placement {
    /// The placement for so many threads; 0 is one per processor. A run that binds its parts to processors binds these, too.
    pub(crate) fn of(threads: Option<u32>, pin: Option<&Pin>) -> Self {
        let Some(pin) = pin else { return Self::on(threads, processors()) };
        let own = pin.of(spec::Role::Mechanism).map_or_else(processors, Processors::len);
        Self { server: Vec::new(), tester: Vec::new(), ..Self::on(threads, own) }
    }

    fn on(threads: Option<u32>, processors: usize) -> Self {
        let threads = match threads {
            None => 1,
            Some(0) => processors,
            Some(some) => some as usize,
        };
        let bind = |from: usize, to: usize| {
            vec!["taskset".to_owned(), "--cpu-list".into(), format!("{from}-{}", to - 1)]
        };
        if threads >= processors {
            return Self { threads, server: Vec::new(), tester: Vec::new() };
        }
        let (server, tester) = (bind(0, threads), bind(threads, processors));
        Self { threads, server, tester }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_tester_stand_apart_where_there_is_room() {
        let one = Placement::on(Some(1), 2);
        assert_eq!((one.threads, one.server[2].as_str()), (1, "0-0"));
        assert_eq!(one.tester[2], "1-1");
        let all = Placement::on(Some(0), 2);
        assert_eq!((all.threads, all.server.len(), all.tester.len()), (2, 0, 0));
        assert_eq!(Placement::on(Some(3), 8).tester[2], "3-7");
        assert_eq!(Placement::on(Some(1), 1).server.len(), 0);
        let pin: Pin = "client=0,mechanism=1-3".parse().unwrap();
        let bound = Placement::of(Some(0), Some(&pin));
        assert_eq!((bound.threads, bound.server.len(), bound.tester.len()), (3, 0, 0));
    }
}
