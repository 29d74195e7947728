//! A policy rule before the kernel's own first one, which delivers to this host.
//!
//! The kernel's rule for the local table has priority 0, and a new rule of the same priority is placed behind it. So
//! the kernel's rule is deleted and added again, behind ours. Meanwhile a substitute with priority 1 leads to the
//! local table, because without that table the host answers no packet. The kernel's rule ends as it was, so that undoing
//! the change is deleting our rule. (With the kernel's rule at another priority for good, the host would depend on
//! programs that delete rules which they do not know.)

use super::effect::{gone, replaced};
use super::ledger::Undo;
use crate::{Netlink, PROTOCOL, Result, Rule, table};

/// `RTPROT_KERNEL`: origin of the rule for the local table, unless another program has made it again.
const KERNEL: u8 = 2;

/// How `rule` will be undone; none if it stands where it should among `rules`.
pub(super) fn prepare(rules: &[Rule], rule: &Rule) -> Option<Undo> {
    let places = Places::among(rules, rule);
    (!places.in_force()).then_some(Undo::EarlyRule { local: places.local_maker() })
}

/// Files `rule` before the local table's.
pub(super) fn make(netlink: &mut Netlink, rule: &Rule) -> Result<()> {
    let places = Places::find(netlink, rule)?;
    let maker = places.local_maker();
    file(netlink, rule, &places).inspect_err(|_| {
        // Whatever was done of it. The first error is the one that tells.
        let _ = unmake(netlink, rule, maker);
    })
}

fn file(netlink: &mut Netlink, rule: &Rule, places: &Places) -> Result<()> {
    let maker = places.local_maker();
    if maker.is_some() && places.stand_in.is_none() {
        netlink.put_rule(&stand_in())?;
    }
    if let Some((_, maker)) = places.local {
        netlink.take_rule(&local(maker))?;
    }
    if places.ours.is_none() {
        netlink.put_rule(rule)?;
    }
    if let Some(maker) = maker {
        netlink.put_rule(&local(maker))?;
        netlink.take_rule(&stand_in())?;
    }
    Ok(())
}

/// Takes `rule` away; says what was found instead if it is not this program's. `was`: who had made the local table's
/// rule before.
pub(super) fn unmake(
    netlink: &mut Netlink,
    rule: &Rule,
    was: Option<u8>,
) -> Result<Option<String>> {
    let places = Places::find(netlink, rule)?;
    // A process was interrupted while the kernel's own rule was away.
    if places.stand_in.is_some() {
        if places.local.is_none() {
            netlink.put_rule(&local(was.unwrap_or(KERNEL)))?;
        }
        netlink.take_rule(&stand_in())?;
    }
    match places.ours {
        None => gone(),
        Some((_, maker)) if maker != PROTOCOL => replaced(),
        Some(_) => netlink.take_rule(rule).map(|()| None),
    }
}

/// Where the rules in question stand, and who made them.
#[derive(Debug)]
struct Places {
    ours: Option<(usize, u8)>,
    /// The local table's rule of priority 0.
    local: Option<(usize, u8)>,
    /// The one that takes its place for a moment.
    stand_in: Option<(usize, u8)>,
}

impl Places {
    fn find(netlink: &mut Netlink, rule: &Rule) -> Result<Self> {
        Ok(Self::among(&netlink.rules()?, rule))
    }

    fn among(rules: &[Rule], rule: &Rule) -> Self {
        let place = |wanted: &Rule| {
            let found = rules.iter().enumerate().find(|(_, it)| it.same_object(wanted));
            found.map(|(at, it)| (at, it.protocol))
        };
        let stand_in = place(&stand_in()).filter(|(_, maker)| *maker == PROTOCOL);
        Self { ours: place(rule), local: place(&local(KERNEL)), stand_in }
    }

    fn in_force(&self) -> bool {
        let first = match (self.ours, self.local) {
            (Some((ours, _)), Some((local, _))) => ours < local,
            (ours, None) => ours.is_some(),
            (None, _) => false,
        };
        first && self.stand_in.is_none()
    }

    /// Who made the local table's rule; also if only its stand-in is left.
    fn local_maker(&self) -> Option<u8> {
        self.local.map(|(_, maker)| maker).or(self.stand_in.map(|_| KERNEL))
    }
}

fn local(maker: u8) -> Rule {
    Rule { protocol: maker, ..Rule::new(false, 0, table::LOCAL) }
}

fn stand_in() -> Rule {
    Rule::new(false, 1, table::LOCAL)
}
