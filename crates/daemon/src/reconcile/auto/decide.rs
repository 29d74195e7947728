//! What an automatic CLAT is to do, as a function of what the network and the host look like, and of time.
//!
//! ```text
//!            native IPv4                       prefix, way, address
//!  aside ◄──────────────── waiting ──────────────────────────────► active
//!    ▲ ────────────────────► ▲ ◄──────────────────────────────────── │
//!    │  it has gone for      │     one of them is missing for [LINGER] │
//!    │  [RETURN] and longer  └─────────────────────────────────────── │
//!    └────────────────── native IPv4 for [SETTLE] ────────────────────┘
//! ```
//!
//! Nothing here looks at a host or at a clock.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use fordway_net::Ipv6Net;
use fordway_xlat::addr::Pool6;

use super::source::{self, Missing};
use crate::apply::upkeep::earlier;
use crate::plan::resolve;

/// How long the CLAT stays when something that it needs is missing: a link that flaps, routes that are
/// written anew.
const LINGER: Duration = Duration::from_secs(3);

/// How long native IPv4 must be there before the CLAT steps aside. It is preferred at once, for its routes
/// have better metrics.
const SETTLE: Duration = Duration::from_secs(2);

/// How long native IPv4 must be gone before the CLAT comes back; doubled for each time that it came and went
/// lately.
const RETURN: Duration = Duration::from_secs(1);

/// The longest that becomes.
const RETURN_MOST: Duration = Duration::from_secs(60);

/// What "lately" means.
const MEMORY: Duration = Duration::from_secs(300);

/// What stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The translator's name, which goes into the address.
    pub(crate) name: String,
    /// The configured uplink.
    pub(crate) uplink: Option<String>,
    /// The configured address.
    pub(crate) v6: Option<Ipv6Addr>,
    /// Native IPv4 is no reason to step aside.
    pub(crate) always: bool,
    /// Metric of the CLAT's own routes.
    pub(crate) metric: u32,
    /// What tells this machine from others.
    pub(crate) machine: Vec<u8>,
}

/// What the network and the host look like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Prefixes that the network tells, the best first.
    pub(crate) prefixes: Vec<Prefix>,
    /// The way to the IPv6 Internet, by the default route.
    pub(crate) default: Option<Hop>,
    /// The configured uplink, where there is one.
    pub(crate) uplink: Option<Device>,
    /// The host's IPv6 addresses.
    pub(crate) addresses: Vec<Address>,
    /// The best native IPv4 default route.
    pub(crate) native: Option<Native>,
    /// Where there is no default route: a device that would take one from a router, but forwards.
    pub(super) deaf: Option<String>,
}

/// A translation prefix that the network tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) pool6: Pool6,
    /// Where it holds, if not everywhere: an advertisement is for its own link.
    pub(crate) device: Option<String>,
    /// How good its source is; the lower, the better.
    pub(super) rank: u8,
    /// The way to it.
    pub(crate) hop: Option<Hop>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) index: u32,
    /// Empty where there is none: PPP, mobile modems.
    pub(crate) hardware_address: Vec<u8>,
    pub(crate) up: bool,
}

/// A way out of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    pub(crate) device: Device,
    /// The source address that the kernel would choose.
    pub(crate) source: Option<Ipv6Addr>,
}

/// An IPv6 address of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) device: String,
    pub(crate) net: Ipv6Net,
    pub(crate) deprecated: bool,
}

/// A native IPv4 default route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Native {
    pub(crate) device: String,
    pub(crate) metric: u32,
}

/// The translator that there is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Desired {
    pub(crate) pref64: Pool6,
    /// How good its source is.
    pub(super) rank: u8,
    pub(crate) uplink: Device,
    pub(crate) v6: Ipv6Addr,
    /// Neighbours on the link could use the address.
    pub(crate) on_link: bool,
}

/// What the CLAT is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Translate.
    Active(Desired),
    /// Wait for what is missing.
    Waiting(Wait),
    /// Leave IPv4 to the network.
    Aside(Native),
}

/// Why there can be no translator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    NoDevice(String),
    Down(String),
    /// `deaf`: as in [`View::deaf`].
    NoRoute {
        deaf: Option<String>,
    },
    Elsewhere {
        pref64: Pool6,
        leads: String,
        uplink: String,
    },
    NoPrefix {
        uplink: String,
    },
    Address(Missing),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::NoDevice(name) => write!(f, "there is no device {name}"),
            Wait::Down(name) => write!(f, "{name} is down"),
            Wait::NoRoute { deaf: None } => write!(f, "no IPv6 default route"),
            Wait::NoRoute { deaf: Some(device) } => write!(
                f,
                "no IPv6 default route; {device} forwards, so it takes none from routers unless \
                 net.ipv6.conf.{device}.accept_ra is 2"
            ),
            Wait::Elsewhere { pref64, leads, uplink } => {
                write!(f, "the route to {pref64} leads out of {leads}, not of {uplink}")
            }
            Wait::NoPrefix { uplink } => write!(
                f,
                "no prefix found on {uplink}: neither a router's advertisement (RFC 8781) nor DNS \
                 (RFC 7050) tells one"
            ),
            Wait::Address(missing) => missing.fmt(f),
        }
    }
}

/// A decision, and until when it holds if nothing changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) decision: Decision,
    pub(crate) again: Option<Instant>,
}

/// Decides for one CLAT.
#[derive(Debug)]
pub(super) struct Machine {
    settings: Settings,
    phase: Phase,
    /// When native IPv4 came, lately.
    came: Vec<Instant>,
    taken: source::Taken,
}

#[derive(Clone, Debug)]
enum Phase {
    Active {
        desired: Desired,
        /// Since when something is missing.
        lacks: Option<Instant>,
        /// Since when native IPv4 is there.
        native: Option<Instant>,
    },
    Waiting,
    Aside {
        native: Native,
        /// Since when it is gone.
        gone: Option<Instant>,
    },
}

impl Machine {
    pub(crate) fn new(settings: Settings) -> Machine {
        Machine {
            settings,
            phase: Phase::Waiting,
            came: Vec::new(),
            taken: source::Taken::default(),
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Another configuration; what was seen stays known.
    pub(crate) fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// A neighbour on the link uses this address.
    pub(super) fn is_taken(&mut self, v6: Ipv6Addr, now: Instant) {
        self.taken.add(v6, now);
    }

    /// What to do now.
    pub(crate) fn step(&mut self, view: &View, now: Instant) -> Step {
        self.taken.forget(now);
        self.came.retain(|came| now.duration_since(*came) < MEMORY);
        let native = self.native(view);
        let wanted = self.wanted(view);
        let (phase, decision, again) = match self.phase.clone() {
            Phase::Waiting => self.enter(native, wanted, now),
            Phase::Aside { native: before, gone } => match (native, gone) {
                (Some(native), _) => aside(native, None, None),
                (None, gone) => {
                    let since = gone.unwrap_or(now);
                    let back = since + self.delay();
                    if back <= now {
                        self.enter(None, wanted, now)
                    } else {
                        aside(before, Some(since), Some(back))
                    }
                }
            },
            Phase::Active { desired, lacks, native: since } => {
                self.stay(desired, lacks, since, native, wanted, now)
            }
        };
        self.phase = phase;
        Step { decision, again }
    }

    /// What to do from the beginning.
    fn enter(
        &mut self,
        native: Option<Native>,
        wanted: Result<Desired, Wait>,
        now: Instant,
    ) -> (Phase, Decision, Option<Instant>) {
        match (native, wanted) {
            (Some(native), _) => {
                self.came.push(now);
                aside(native, None, None)
            }
            (None, Ok(desired)) => active(desired, None, None),
            (None, Err(wait)) => (Phase::Waiting, Decision::Waiting(wait), None),
        }
    }

    fn stay(
        &mut self,
        before: Desired,
        lacks: Option<Instant>,
        since: Option<Instant>,
        native: Option<Native>,
        wanted: Result<Desired, Wait>,
        now: Instant,
    ) -> (Phase, Decision, Option<Instant>) {
        let since = native.as_ref().map(|_| since.unwrap_or(now));
        let steps_aside = since.map(|since| since + SETTLE);
        if let (Some(native), Some(at)) = (native, steps_aside)
            && at <= now
        {
            self.came.push(now);
            return aside(native, None, None);
        }
        let (phase, decision, again) = match wanted {
            Ok(desired) => active(desired, None, since),
            // An address that a neighbour uses is given up at once.
            Err(wait @ Wait::Address(Missing::Taken(_) | Missing::Own { .. })) => {
                (Phase::Waiting, Decision::Waiting(wait), None)
            }
            Err(wait) => {
                let lacks = lacks.unwrap_or(now);
                if lacks + LINGER <= now {
                    (Phase::Waiting, Decision::Waiting(wait), None)
                } else {
                    let (phase, decision, _) = active(before, Some(lacks), since);
                    (phase, decision, Some(lacks + LINGER))
                }
            }
        };
        (phase, decision, earlier(again, steps_aside))
    }

    /// How long native IPv4 must be gone.
    fn delay(&self) -> Duration {
        let doublings = u32::try_from(self.came.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let factor = 1u32.checked_shl(doublings.min(16)).unwrap_or(u32::MAX);
        RETURN.saturating_mul(factor).min(RETURN_MOST)
    }

    /// The native route for whose sake to step aside. One with a worse metric than the CLAT's own carries
    /// nothing: some network manager has found that it leads nowhere.
    fn native(&self, view: &View) -> Option<Native> {
        let better =
            |native: &&Native| !self.settings.always && native.metric <= self.settings.metric;
        view.native.as_ref().filter(better).cloned()
    }

    /// The translator that there could be, as little different from the one before as can be.
    fn wanted(&self, view: &View) -> Result<Desired, Wait> {
        let uplink = self.uplink(view)?;
        let before = match &self.phase {
            Phase::Active { desired, .. } => Some(desired),
            Phase::Waiting | Phase::Aside { .. } => None,
        };
        let prefix = self.prefix(view, &uplink, before)?;
        // The uplink that the prefix has: another than the default route's where a route of its own leads
        // there.
        let hop = prefix.hop.as_ref().ok_or_else(|| no_route(view))?;
        let chosen = source::choose(
            &self.settings,
            (hop, prefix.pool6.embed(resolve::PROBE_V4)),
            &view.addresses,
            &self.taken,
            before.filter(|before| before.uplink.name == hop.device.name).map(|it| it.v6),
        );
        let (v6, on_link) = chosen.map_err(Wait::Address)?;
        Ok(Desired {
            pref64: prefix.pool6,
            rank: prefix.rank,
            uplink: hop.device.clone(),
            v6,
            on_link,
        })
    }

    /// The device towards the IPv6 network, as far as it is known without a prefix.
    fn uplink(&self, view: &View) -> Result<String, Wait> {
        match (&self.settings.uplink, &view.uplink, &view.default) {
            (Some(name), None, _) => Err(Wait::NoDevice(name.clone())),
            (Some(name), Some(device), _) if !device.up => Err(Wait::Down(name.clone())),
            (Some(name), ..) => Ok(name.clone()),
            (None, _, Some(hop)) => Ok(hop.device.name.clone()),
            // A prefix may have a route of its own.
            (None, _, None) => view
                .prefixes
                .iter()
                .find_map(|prefix| prefix.hop.as_ref())
                .map(|hop| hop.device.name.clone())
                .ok_or_else(|| no_route(view)),
        }
    }

    /// Of the prefixes that hold on the way to them, one from the best source; among equals the one in use.
    fn prefix<'v>(
        &self,
        view: &'v View,
        uplink: &str,
        before: Option<&Desired>,
    ) -> Result<&'v Prefix, Wait> {
        let leads = |prefix: &Prefix, device: &str| {
            prefix.hop.as_ref().is_some_and(|hop| hop.device.name == device)
        };
        let usable = |prefix: &&Prefix| {
            let here = self.settings.uplink.as_deref().is_none_or(|name| leads(prefix, name));
            here && match &prefix.device {
                Some(device) => leads(prefix, device),
                None => prefix.hop.is_some(),
            }
        };
        let best = view.prefixes.iter().find(usable);
        let kept = before.and_then(|before| {
            let same = |prefix: &&Prefix| {
                prefix.pool6 == before.pref64
                    && best.is_some_and(|best| prefix.rank <= best.rank)
                    && leads(prefix, &before.uplink.name)
            };
            view.prefixes.iter().filter(usable).find(same)
        });
        if let Some(prefix) = kept.or(best) {
            return Ok(prefix);
        }
        let told =
            |prefix: &&Prefix| prefix.device.as_deref().is_none_or(|device| device == uplink);
        match view.prefixes.iter().find(told) {
            None => Err(Wait::NoPrefix { uplink: uplink.to_owned() }),
            Some(prefix) => match &prefix.hop {
                None => Err(no_route(view)),
                Some(hop) => Err(Wait::Elsewhere {
                    pref64: prefix.pool6,
                    leads: hop.device.name.clone(),
                    uplink: uplink.to_owned(),
                }),
            },
        }
    }
}

fn no_route(view: &View) -> Wait {
    Wait::NoRoute { deaf: view.deaf.clone() }
}

fn active(
    desired: Desired,
    lacks: Option<Instant>,
    native: Option<Instant>,
) -> (Phase, Decision, Option<Instant>) {
    let decision = Decision::Active(desired.clone());
    (Phase::Active { desired, lacks, native }, decision, None)
}

fn aside(
    native: Native,
    gone: Option<Instant>,
    again: Option<Instant>,
) -> (Phase, Decision, Option<Instant>) {
    (Phase::Aside { native: native.clone(), gone }, Decision::Aside(native), again)
}

#[cfg(test)]
mod tests;
