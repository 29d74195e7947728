//! What was advertised on one device, and must be withdrawn when it is no longer true.
//!
//! A prefix that is gone is advertised as deprecated for as long as a host may still use it; everything else is
//! advertised with a lifetime of zero a few times (RFC 8106 section 5, RFC 8781 section 4.1, RFC 4191 section 2.3, RFC
//! 9463 section 6.1). A captive portal has no lifetime; that there is none any more is advertised by the name for that.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use fordway_dns64::ndp::{INFINITY, MAX_INITIAL_RTR_ADVERTISEMENTS, PrefixInformation};
use hickory_proto::rr::Name;
use ipnet::Ipv6Net;

use super::content::Content;

/// How long a host keeps a prefix at most that is no longer advertised as valid: it ignores a shorter lifetime (RFC
/// 4862 section 5.5.3, e).
const TWO_HOURS: Duration = Duration::from_secs(7200);

/// How long a prefix of the device's own addresses may be missing without being withdrawn: a reconfiguration removes
/// and adds addresses within that time.
const AWAY: Duration = Duration::from_secs(2);

/// Most prefixes that are advertised as deprecated.
const DEPRECATED: usize = 16;

/// Something that is advertised and can be withdrawn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item {
    Prefix(Ipv6Net),
    Route(Ipv6Net),
    Rdnss(Ipv6Addr),
    Dnssl(Name),
    Pref64(Ipv6Net),
    Dnr(Name),
    /// Some captive portal: the option has no lifetime, and one at most is advertised.
    CaptivePortal,
}

/// What an advertisement withdraws.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Withdrawal {
    /// Deprecated prefixes.
    pub(super) prefixes: Vec<PrefixInformation>,
    /// Everything else, to be advertised with a lifetime of zero; no prefix.
    pub(super) items: Vec<Item>,
}

/// The ledger of one device, which stays when the device goes down or is removed.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    prefixes: Vec<Told>,
    /// Each with the number of withdrawals that are still to be sent once it is gone.
    items: Vec<(Item, u32)>,
}

/// A prefix that was advertised.
#[derive(Clone, Copy, Debug)]
struct Told {
    info: PrefixInformation,
    /// When hosts forget it; never if `None`.
    valid_until: Option<Instant>,
    /// Since when it is no longer to be advertised.
    gone: Option<Instant>,
}

impl Told {
    fn prefix(&self) -> Option<Ipv6Net> {
        Ipv6Net::new(self.info.prefix, self.info.prefix_len).ok()
    }

    /// The option that deprecates it at `now`, for hosts that forget it at `until`.
    fn deprecated(&self, until: Instant, now: Instant) -> PrefixInformation {
        let left = until.saturating_duration_since(now).as_secs();
        PrefixInformation {
            valid_lifetime: u32::try_from(left).unwrap_or(INFINITY),
            preferred_lifetime: 0,
            ..self.info
        }
    }

    /// When hosts forget it if it was last advertised as valid at `gone`.
    fn end(&self, gone: Instant) -> Instant {
        self.valid_until.map_or(gone + TWO_HOURS, |until| until.min(gone + TWO_HOURS))
    }
}

impl Ledger {
    /// Compares with what is advertised from now on; `patient` if prefixes may reappear at once. The withdrawal of what
    /// has reappeared ends.
    pub(super) fn compare(&mut self, content: &Content, patient: bool, now: Instant) {
        for told in &mut self.prefixes {
            let stays = content.prefixes.iter().any(|it| Some(it.prefix) == told.prefix());
            told.gone = match (stays, told.gone) {
                (true, _) => None,
                (false, Some(gone)) => Some(gone),
                (false, None) => Some(if patient { now + AWAY } else { now }),
            };
        }
        self.prefixes.retain(|told| told.gone.is_none_or(|gone| told.end(gone) > now));
        while self.prefixes.iter().filter(|told| told.gone.is_some()).count() > DEPRECATED {
            let oldest =
                self.prefixes.iter().enumerate().filter_map(|(at, it)| Some((it.gone?, at)));
            if let Some((_, at)) = oldest.min() {
                self.prefixes.remove(at);
            }
        }
    }

    /// When a missing prefix is to be withdrawn, if that is still to come.
    pub(super) fn next_gone(&self, now: Instant) -> Option<Instant> {
        self.prefixes.iter().filter_map(|told| told.gone).filter(|gone| *gone > now).min()
    }

    /// What an advertisement of `content` has to withdraw at `now`: nothing that `others` on the link advertise.
    pub(super) fn withdrawal(
        &self,
        content: &Content,
        others: impl Fn(&Item) -> bool,
        now: Instant,
    ) -> Withdrawal {
        let current: Vec<Item> = items(content).collect();
        let prefixes = self.prefixes.iter().filter_map(|told| {
            let gone = told.gone.filter(|gone| *gone <= now)?;
            let end = told.end(gone);
            let ours = end > now && !others(&Item::Prefix(told.prefix()?));
            ours.then(|| told.deprecated(end, now))
        });
        let stale = self.items.iter().filter(|(it, _)| !current.contains(it) && !others(it));
        Withdrawal {
            prefixes: prefixes.collect(),
            items: stale.map(|(item, _)| item.clone()).collect(),
        }
    }

    /// The withdrawal of everything, at the end, but of a captive portal: whether another router has one, hosts learn of
    /// that one.
    pub(super) fn farewell(&self, others: impl Fn(&Item) -> bool, now: Instant) -> Withdrawal {
        let prefixes = self.prefixes.iter().filter_map(|told| {
            let end = told.end(told.gone.unwrap_or(now).min(now));
            let ours = end > now && !others(&Item::Prefix(told.prefix()?));
            ours.then(|| told.deprecated(end, now))
        });
        let ours = |it: &&Item| **it != Item::CaptivePortal && !others(it);
        let items = self.items.iter().map(|(item, _)| item).filter(ours).cloned();
        Withdrawal { prefixes: prefixes.collect(), items: items.collect() }
    }

    /// Records that `content` was advertised at `now`: to all nodes, with the withdrawals, or to one.
    pub(super) fn said(&mut self, content: &Content, to_all: bool, now: Instant) {
        for prefix in &content.prefixes {
            let info = content.information(prefix, now);
            let valid_until = (info.valid_lifetime != INFINITY)
                .then(|| now + Duration::from_secs(info.valid_lifetime.into()));
            let told = Told { info, valid_until, gone: None };
            match self.prefixes.iter_mut().find(|it| it.prefix() == told.prefix()) {
                Some(it) => *it = told,
                None => self.prefixes.push(told),
            }
        }
        let current: Vec<Item> = items(content).collect();
        if to_all {
            for (_, left) in self.items.iter_mut().filter(|(item, _)| !current.contains(item)) {
                *left = left.saturating_sub(1);
            }
        }
        self.items.retain(|(item, left)| *left > 0 && !current.contains(item));
        self.items.extend(current.into_iter().map(|it| (it, MAX_INITIAL_RTR_ADVERTISEMENTS)));
    }

    /// Prefixes that are withdrawn at `now`.
    pub(super) fn deprecated(&self, now: Instant) -> Vec<Ipv6Net> {
        let gone = self.prefixes.iter().filter(|it| it.gone.is_some_and(|gone| gone <= now));
        gone.filter_map(Told::prefix).collect()
    }
}

/// What of `content` can be withdrawn, without prefixes.
fn items(content: &Content) -> impl Iterator<Item = Item> {
    let net = |prefix, len| Ipv6Net::new(prefix, len).ok();
    let routes = content.routes.iter().filter_map(move |it| net(it.prefix, it.prefix_len));
    let pref64 = content.pref64.iter().filter_map(move |it| net(it.prefix(), it.prefix_len()));
    routes
        .map(Item::Route)
        .chain(content.rdnss.iter().copied().map(Item::Rdnss))
        .chain(content.dnssl.iter().cloned().map(Item::Dnssl))
        .chain(pref64.map(Item::Pref64))
        .chain(content.dnr.iter().map(|(it, _)| Item::Dnr(it.name.clone())))
        .chain(content.captive_portal.iter().map(|_| Item::CaptivePortal))
}

#[cfg(test)]
mod tests;
