//! One device that advertises: its state, the content, and when it is sent.
//!
//! Time, random numbers and the state of the host are arguments; what is to be sent is returned.

use std::net::Ipv6Addr;
use std::time::Instant;

use fordway_dns64::ndp::{
    ALL_NODES, Advertisement, MAX_INITIAL_RTR_ADVERTISEMENTS, ROUTER_ADVERTISEMENT,
    ROUTER_SOLICITATION, solicitation,
};
use tracing::{info, warn};

use super::content::{Content, Facts};
use super::dhcp::{self, Told};
use super::encode;
use super::ledger::Ledger;
use super::others::Others;
use super::schedule::Schedule;
use super::settings::{Device, Prefixes};
use fordway_counters::router::{DeviceStats, State};
use fordway_serve::Bucket;

/// A message for the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outgoing {
    /// Index of the interface.
    pub(super) index: u32,
    pub(super) source: Ipv6Addr,
    pub(super) to: Ipv6Addr,
    pub(super) message: Vec<u8>,
}

/// A device of the settings.
#[derive(Debug)]
pub(super) struct Link {
    settings: Device,
    facts: Option<Facts>,
    /// Source of the advertisements, while it advertises.
    source: Option<Ipv6Addr>,
    /// An earlier source, and how many times it is still to be advertised as no router.
    former: Option<(Ipv6Addr, u32)>,
    /// What it advertises; kept while it is down.
    content: Option<Content>,
    schedule: Schedule,
    ledger: Ledger,
    /// When a missing prefix is to be withdrawn.
    gone: Option<Instant>,
    others: Others,
    /// Of DHCPv6 replies.
    replies: Bucket,
    stats: DeviceStats,
}

impl Link {
    pub(super) fn new(settings: Device) -> Link {
        let stats = DeviceStats { device: settings.device.clone(), ..DeviceStats::default() };
        Link {
            schedule: Schedule::new(settings.min_interval(), settings.interval),
            settings,
            facts: None,
            source: None,
            former: None,
            content: None,
            ledger: Ledger::default(),
            gone: None,
            others: Others::default(),
            replies: Bucket::default(),
            stats,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.settings.device
    }

    /// Index of the interface, if there is one.
    pub(super) fn index(&self) -> Option<u32> {
        self.facts.as_ref().map(|facts| facts.index)
    }

    pub(super) fn stats(&self) -> &DeviceStats {
        &self.stats
    }

    pub(super) fn stats_mut(&mut self) -> &mut DeviceStats {
        &mut self.stats
    }

    /// Applies other settings of the same device.
    pub(super) fn replace(&mut self, settings: Device, now: Instant) {
        self.schedule.set_intervals(settings.min_interval(), settings.interval);
        self.settings = settings;
        // What is no longer listed is withdrawn at once.
        self.refresh(false, now);
    }

    /// Takes the device's new state, and whether it was down or removed since the last one.
    pub(super) fn observe(&mut self, facts: Option<Facts>, was_down: bool, now: Instant) {
        let before = self.source;
        let index = self.index();
        self.facts = facts;
        let source = self.choose_source();
        if let Some(old) = before.filter(|old| Some(*old) != source) {
            self.parting_from(old, source);
        }
        self.source = source;
        let begins = source.is_some() && (before != source || was_down || index != self.index());
        if source.is_none() {
            self.schedule.end();
        } else if begins {
            self.schedule.begin(now);
        }
        self.refresh(true, now);
        self.note_state();
    }

    /// Whether the host forwards what comes in here.
    pub(super) fn set_forwarding(&mut self, forwarding: bool, now: Instant) {
        if let Some(facts) = &mut self.facts
            && facts.forwarding != forwarding
        {
            facts.forwarding = forwarding;
            self.refresh(true, now);
            self.note_state();
        }
    }

    /// A router solicitation or advertisement that came in here.
    pub(super) fn receive(
        &mut self,
        message: &[u8],
        source: Ipv6Addr,
        hop_limit: u8,
        random: u64,
        now: Instant,
    ) {
        match message.first() {
            Some(&ROUTER_SOLICITATION) => {
                // RFC 4861 section 6.1.1; the kernel keeps the neighbour cache (section 6.2.6).
                if solicitation::receive(source, hop_limit, message).is_ok() {
                    self.stats.solicitations += 1;
                    self.schedule.solicit(now, source, random);
                } else {
                    self.stats.invalid += 1;
                }
            }
            Some(&ROUTER_ADVERTISEMENT) => {
                self.receive_advertisement(message, source, hop_limit, now);
            }
            _ => self.stats.invalid += 1,
        }
    }

    fn receive_advertisement(
        &mut self,
        message: &[u8],
        source: Ipv6Addr,
        hop_limit: u8,
        now: Instant,
    ) {
        let Ok((fields, options)) = Advertisement::receive(source, hop_limit, message) else {
            self.stats.invalid += 1;
            return;
        };
        // A former address of this router is no other router.
        let own = self.facts.iter().flat_map(|it| &it.addresses).map(|it| it.address.addr());
        if own.chain(self.former.map(|(it, _)| it)).any(|it| it == source) {
            return;
        }
        self.stats.advertisements += 1;
        let Some(ours) = &self.content else {
            return;
        };
        let found = self.others.receive(source, &fields, &options, ours, now);
        self.stats.inconsistent += u64::from(!found.is_empty());
        for what in found {
            if self.others.first(source, what) {
                warn!(device = self.name(), router = %source,
                    "another router's advertisements differ from this one's: {what}");
            }
        }
    }

    /// When [`Link::due`] has something next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let gone = self.source.and(self.gone);
        self.schedule.deadline().into_iter().chain(gone).min()
    }

    /// What is to be sent now.
    pub(super) fn due(&mut self, random: u64, now: Instant) -> Vec<Outgoing> {
        if self.gone.take_if(|gone| *gone <= now).is_some() {
            // A missing prefix has not reappeared: its withdrawal is due.
            self.gone = self.ledger.next_gone(now);
            self.schedule.begin(now);
        }
        let (Some(facts), Some(source), Some(content)) = (&self.facts, self.source, &self.content)
        else {
            return Vec::new();
        };
        let due = self.schedule.take(now, random);
        let others = |item: &_| self.others.advertise(item, now);
        let withdrawal = self.ledger.withdrawal(content, others, now);
        let messages = encode::advertisements(content, &withdrawal, source, facts.mtu, now);
        let mut outgoing = Vec::new();
        let mut push = |source, to, messages: &[Vec<u8>]| {
            outgoing.extend(messages.iter().map(|message| Outgoing {
                index: facts.index,
                source,
                to,
                message: message.clone(),
            }));
        };
        if due.multicast {
            if let Some((former, left)) = self.former {
                push(former, ALL_NODES, &encode::parting(content, former));
                self.former = (left > 1).then(|| (former, left - 1));
            }
            push(source, ALL_NODES, &messages);
            self.ledger.said(content, true, now);
        }
        for host in due.unicast {
            push(source, host, &messages);
            self.ledger.said(content, false, now);
        }
        self.note_content(now);
        outgoing
    }

    /// An advertisement to all nodes could not be sent.
    pub(super) fn unsent(&mut self, now: Instant) {
        self.schedule.again(now);
    }

    /// The final advertisement (RFC 4861 section 6.2.5). Only one, and at once: the process ends.
    pub(super) fn farewell(&mut self, now: Instant) -> Vec<Outgoing> {
        let (Some(facts), Some(source), Some(content)) = (&self.facts, self.source, &self.content)
        else {
            return Vec::new();
        };
        if self.stats.sent + self.stats.sent_unicast == 0 {
            return Vec::new();
        }
        let withdrawal = self.ledger.farewell(|item| self.others.advertise(item, now), now);
        let messages = encode::farewell(content, &withdrawal, source, facts.mtu);
        let index = facts.index;
        let to_all = |message| Outgoing { index, source, to: ALL_NODES, message };
        messages.into_iter().map(to_all).collect()
    }

    /// The address to answer from, and what DHCPv6 clients of this link are told; `None` if they are not answered here.
    pub(super) fn dhcpv6(&self) -> Option<(Ipv6Addr, Told<'_>)> {
        let content = self.content.as_ref().filter(|_| self.settings.dhcpv6)?;
        let told = Told {
            servers: &content.rdnss,
            names: &content.dnssl,
            resolvers: &self.settings.dnr,
            captive_portal: content.captive_portal.as_deref(),
        };
        Some((self.source?, told))
    }

    /// Whether one more DHCPv6 client may be answered now.
    pub(super) fn admit(&mut self, now: Instant) -> bool {
        dhcp::admit(&mut self.replies, now)
    }

    /// Makes the content anew, and advertises it soon if it differs notably.
    fn refresh(&mut self, patient: bool, now: Instant) {
        let Some(facts) = self.facts.as_ref().filter(|_| self.source.is_some()) else {
            return;
        };
        let content = Content::new(&self.settings, facts);
        let patient = patient && self.settings.prefixes == Prefixes::OfDevice;
        self.ledger.compare(&content, patient, now);
        self.gone = self.ledger.next_gone(now);
        if self.content.as_ref().is_none_or(|old| old.differs(&content)) {
            self.schedule.begin(now);
        }
        self.content = Some(content);
        self.note_content(now);
    }

    /// The link-local address to send from: the same one as long as the device has it.
    fn choose_source(&self) -> Option<Ipv6Addr> {
        let facts = self.facts.as_ref().filter(|facts| facts.running)?;
        let mut usable = facts.addresses.iter().filter(|it| it.link_local() && it.usable());
        let mut first = usable.clone();
        usable
            .find(|it| Some(it.address.addr()) == self.source)
            .or_else(|| first.next())
            .map(|it| it.address.addr())
    }

    /// RFC 4861 section 6.2.8: hosts that use the router's old address are told from there that it is no router, as
    /// often as a new router is advertised.
    fn parting_from(&mut self, old: Ipv6Addr, new: Option<Ipv6Addr>) {
        match new {
            Some(new) => {
                info!(device = self.name(), %old, %new, "the link-local address has changed");
                self.former = Some((old, MAX_INITIAL_RTR_ADVERTISEMENTS));
            }
            // Down: no host would receive it. The rest is said when the device is up again.
            None => self.former = self.former.or(Some((old, MAX_INITIAL_RTR_ADVERTISEMENTS))),
        }
        if self.former.map(|(former, _)| former) == new {
            self.former = None;
        }
    }

    fn note_state(&mut self) {
        let state = match &self.facts {
            None => State::Absent,
            Some(facts) if !facts.running => State::Down,
            Some(_) if self.source.is_none() => State::NoLinkLocal,
            Some(_) => State::Advertising,
        };
        let forwarding = self.facts.as_ref().is_some_and(|facts| facts.forwarding);
        if state != self.stats.state {
            info!(device = self.name(), ?state, "router advertisements");
        }
        let wants_router = state == State::Advertising && self.settings.router_lifetime() > 0;
        let was_fine = self.stats.forwarding || self.stats.state != State::Advertising;
        if wants_router && !forwarding && was_fine {
            warn!(
                device = self.name(),
                "IPv6 forwarding is off: hosts are told that this is no default router"
            );
        }
        self.stats.state = state;
        self.stats.forwarding = forwarding;
        self.stats.link_local = self.source;
    }

    fn note_content(&mut self, now: Instant) {
        let Some(content) = &self.content else {
            return;
        };
        self.stats.prefixes = content.prefixes.iter().map(|it| it.prefix).collect();
        self.stats.rdnss.clone_from(&content.rdnss);
        self.stats.pref64 = content
            .pref64
            .iter()
            .filter_map(|it| ipnet::Ipv6Net::new(it.prefix(), it.prefix_len()).ok())
            .collect();
        self.stats.dnr = content.dnr.iter().map(|(it, _)| it.name.to_ascii()).collect();
        self.stats.captive_portal.clone_from(&content.captive_portal);
        self.stats.deprecated = self.ledger.deprecated(now);
    }
}

#[cfg(test)]
mod tests;
