//! CLATs that set themselves up: `pref64 = "auto"`.
//!
//! | file | |
//! |---|---|
//! | `auto/decide.rs` | what to do, as a function of what is seen, and of time |
//! | `auto/source.rs` | which IPv6 address the CLAT takes |
//! | `auto/view.rs` | what is seen: the host, by netlink |
//! | `auto/discovery.rs` | what routers, resolvers and neighbours tell, read without capabilities |
//! | `auto/apply.rs` | does it, by the same set-up, change and take-down as for any other translator |
//! | `auto/duplicate.rs`, `auto/check.rs` | asks whether the address is free |

mod apply;
mod check;
mod decide;
pub(crate) mod discovery;
mod duplicate;
mod source;
mod status;
mod view;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fordway_config::{Engine, Mode, Pref64, Translator};
use fordway_dns64::discovery::Found;
use fordway_net::Netlink;
use fordway_net::privilege::Capability;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tracing::{debug, info, warn};

use crate::apply::translators::{Context, Translators};
use crate::failure::Failure;
use crate::handover::leftover::Leftover;
use crate::plan::clat_address;
use apply::Attempt;
use check::Check;
use decide::{Decision, Desired, Machine, Settings, Step};
use discovery::{Claim, Opened, Prober};

/// When to look again where looking has failed.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// A CLAT that sets itself up.
pub(crate) struct Auto {
    /// What the file says.
    template: Translator,
    machine: Machine,
    /// What the network tells.
    found: Found,
    /// What was decided last.
    decision: Option<Decision>,
    since: Instant,
    /// How often that has changed.
    changes: u64,
    /// What the host is set up for.
    applied: Option<Desired>,
    attempt: Attempt,
    /// When the host was last held against that.
    reviewed: Instant,
    check: Check,
    left: Option<Leftover>,
    /// Open sockets, until a task has them.
    opened: Option<Opened>,
    /// Has it look now.
    kick: Rc<Notify>,
    task: Option<AbortHandle>,
}

/// What has happened since the last look.
pub(crate) struct Seen<'s> {
    pub(crate) found: Found,
    /// Devices that could not pass packets meanwhile.
    pub(crate) down: &'s BTreeSet<u32>,
    pub(crate) prober: Option<&'s mut Prober>,
    pub(crate) netlink: &'s mut Netlink,
    pub(crate) now: Instant,
}

impl Auto {
    /// Waits for the network; `left`: what an earlier daemon has left.
    pub(crate) fn new(template: Translator, opened: Opened, left: Option<Leftover>) -> Auto {
        Auto {
            machine: Machine::new(settings(&template)),
            template,
            found: Found::default(),
            decision: None,
            since: Instant::now(),
            changes: 0,
            applied: None,
            attempt: Attempt::default(),
            reviewed: Instant::now(),
            check: Check::new(opened.can_check()),
            left,
            opened: Some(opened),
            kick: Rc::new(Notify::new()),
            task: None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.template.name.as_str()
    }

    /// Has it look at everything now.
    pub(crate) fn kick(&self) {
        self.kick.notify_one();
    }

    /// Its sockets and what wakes it, until a task has been started for it.
    pub(crate) fn take_opened(&mut self) -> Option<(Opened, Rc<Notify>)> {
        Some((self.opened.take()?, Rc::clone(&self.kick)))
    }

    /// The task that waits for it, which ends with it.
    pub(crate) fn set_task(&mut self, task: AbortHandle) {
        self.task = Some(task);
    }

    /// Another configuration.
    pub(crate) fn configure(&mut self, template: &Translator) {
        if self.template != *template {
            self.template = template.clone();
            self.machine.configure(settings(template));
            self.kick();
        }
    }

    /// The translator that `template` stands for at this moment.
    pub(crate) fn concrete(&self, template: &Translator) -> Option<Translator> {
        self.applied.as_ref().map(|desired| concrete(template, desired))
    }

    /// Looks, and does what is to be done. Gives the time of the next look at the latest.
    pub(crate) fn step(
        &mut self,
        translators: &mut Translators,
        order: &[Translator],
        seen: Seen<'_>,
    ) -> Option<Instant> {
        let Seen { found, down, prober, netlink, now } = seen;
        self.tell_found(&found);
        self.found = found;
        let view = match view::read(netlink, self.machine.settings(), &self.found) {
            Ok(view) => view,
            Err(error) => {
                debug!("{}: cannot look at the host: {error}", self.name());
                return Some(now + AGAIN);
            }
        };
        let Step { decision, again } = self.machine.step(&view, now);
        self.note(decision, now);
        let retry = self.carry_out(translators, order, now);
        let subject = self.applied.as_ref().filter(|applied| applied.on_link);
        let check = self.check.follow(subject, down, prober, now);
        if self.check.free_now() {
            debug!("{}: no other host on the link has the address", self.name());
        }
        let left = self.await_left(translators, now);
        [again, retry, check, left].into_iter().flatten().min()
    }

    /// A neighbour claims an address: if it is the one in use, it is given up.
    pub(crate) fn address_claimed(&mut self, claim: &Claim, now: Instant) {
        let Some(v6) = self.check.claimed(claim) else { return };
        let mac = claim.by.map(|octet| format!("{octet:02x}")).join(":");
        warn!("{}: {mac} on the link has the address {v6}, so it is given up", self.name());
        self.machine.is_taken(v6, now);
    }

    /// Whether the kernel engine may have to be started or taken down.
    pub(crate) fn may_need_kernel(&self, context: &Context) -> bool {
        let wanted = self.template.engine != Engine::User && context.host.is_ok();
        wanted || self.left.is_some()
    }

    /// Logs prefixes that come and go.
    fn tell_found(&self, found: &Found) {
        let is_in = |found: &Found, wanted: &fordway_dns64::discovery::Prefix| {
            let same = |it: &&_| {
                let it: &fordway_dns64::discovery::Prefix = it;
                it.pool6 == wanted.pool6 && it.source == wanted.source
            };
            found.prefixes.iter().any(|it| same(&it))
        };
        for prefix in found.prefixes.iter().filter(|it| !is_in(&self.found, it)) {
            info!("{}: prefix {} ({})", self.name(), prefix.pool6, status::told_by(prefix));
        }
        for prefix in self.found.prefixes.iter().filter(|it| !is_in(found, it)) {
            info!(
                "{}: prefix {} is no longer valid ({})",
                self.name(),
                prefix.pool6,
                status::told_by(prefix)
            );
        }
    }

    /// Remembers a decision, and logs it if it is another than before.
    fn note(&mut self, decision: Decision, now: Instant) {
        let before = self.decision.as_ref();
        let same = match (before, &decision) {
            (Some(Decision::Active(before)), Decision::Active(desired)) => before.is_like(desired),
            (Some(before), decision) => before == decision,
            (None, _) => false,
        };
        if !same {
            match &decision {
                Decision::Active(desired) => info!(
                    "{}: {} by way of {}, IPv4 is {} there",
                    self.name(),
                    desired.pref64,
                    desired.uplink.name,
                    desired.v6
                ),
                Decision::Waiting(wait) => info!("{}: waiting: {wait}", self.name()),
                Decision::Aside(native) => {
                    info!("{}: aside: there is native IPv4 on {}", self.name(), native.device);
                }
            }
            let states = |it: &Decision| std::mem::discriminant(it);
            if before.map(states) != Some(states(&decision)) {
                self.since = now;
            }
            self.changes += u64::from(before.is_some());
        }
        self.decision = Some(decision);
    }
}

impl Auto {
    /// Takes down what is left when it is of no use. Gives the time until which it may stay.
    fn await_left(&mut self, translators: &Translators, now: Instant) -> Option<Instant> {
        // A translator of this name has it.
        if translators.running.iter().any(|one| one.name() == self.name()) {
            self.left = None;
        }
        let until = self.left.as_ref()?.until;
        if until > now && !matches!(self.decision, Some(Decision::Aside(_))) {
            return Some(until);
        }
        self.left.take()?.take_down();
        None
    }

    /// Ends it, and takes down what an earlier run has left.
    pub(crate) fn abandon(mut self) {
        if let Some(left) = self.left.take() {
            left.take_down();
        }
    }
}

impl Drop for Auto {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Desired {
    /// Whether the same translator would come of it.
    fn is_like(&self, other: &Desired) -> bool {
        let own = |it: &Desired| (it.pref64, it.v6, it.uplink.index, it.uplink.name.clone());
        own(self) == own(other)
    }
}

/// The automatic ones among translators, and the others.
pub(crate) fn split(translators: &[Translator]) -> (Vec<Translator>, Vec<Translator>) {
    translators.iter().cloned().partition(Translator::is_automatic)
}

/// Takes sockets for automatic CLATs, while there are privileges for that.
pub(crate) fn open(templates: &[Translator], context: &Context) -> Result<Vec<Auto>, Failure> {
    let open = |template: &Translator| {
        let opened = Opened::open(template)?;
        Ok(Auto::new(template.clone(), opened, Leftover::find(template, &context.run_dir)))
    };
    templates.iter().map(open).collect()
}

/// What is needed to open sockets for those that a reload brings back.
pub(crate) fn capabilities(automatic: &[Auto]) -> &'static [Capability] {
    if automatic.is_empty() { &[] } else { &[Capability::CAP_NET_RAW] }
}

/// What never changes while the configuration does not.
fn settings(template: &Translator) -> Settings {
    let clat = template.clat();
    Settings {
        name: template.name.to_string(),
        uplink: clat.and_then(|clat| clat.uplink.as_ref()).map(ToString::to_string),
        v6: clat.and_then(|clat| clat.v6),
        always: clat.is_some_and(|clat| clat.always),
        metric: template.metric,
        machine: clat_address::machine(),
    }
}

/// The translator that a template stands for.
fn concrete(template: &Translator, desired: &Desired) -> Translator {
    let mut translator = template.clone();
    if let Mode::Clat(clat) = &mut translator.mode {
        clat.pref64 = Pref64::Fixed(desired.pref64);
        clat.v6 = Some(desired.v6);
    }
    translator
}
