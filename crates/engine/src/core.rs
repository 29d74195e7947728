//! What an engine runs: a translator, or one end of softwires.

use std::sync::Arc;
use std::time::Duration;

use fordway_softwire::{Part, Softwire};
use fordway_xlat::nat64::{Nat64, Shards};
use fordway_xlat::reassembly::Origin;
use fordway_xlat::trace::Trace;
use fordway_xlat::{Packet, State, Translator, Verdict};

use crate::fragments::may_be_fragment;

/// What packets go through.
#[derive(Clone, Debug)]
pub enum Core {
    /// A translator.
    Translator(Arc<Translator>),
    /// One end of softwires.
    Softwire(Arc<Softwire>),
}

impl From<Arc<Translator>> for Core {
    fn from(translator: Arc<Translator>) -> Core {
        Core::Translator(translator)
    }
}

impl From<Arc<Softwire>> for Core {
    fn from(softwire: Arc<Softwire>) -> Core {
        Core::Softwire(softwire)
    }
}

/// How a packet waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The packet itself is a fragment.
    Packet(Origin),
    /// The packet in a tunnel is one; it begins at this octet.
    Inside(usize, Origin),
}

impl Core {
    /// The translator, if it is one.
    #[must_use]
    pub fn translator(&self) -> Option<&Arc<Translator>> {
        match self {
            Core::Translator(translator) => Some(translator),
            Core::Softwire(_) => None,
        }
    }

    /// The softwires, if it is their end.
    #[must_use]
    pub fn softwire(&self) -> Option<&Arc<Softwire>> {
        match self {
            Core::Softwire(softwire) => Some(softwire),
            Core::Translator(_) => None,
        }
    }

    /// The tables of a translator that has any.
    #[must_use]
    pub fn tables(&self) -> Option<&Arc<Nat64>> {
        self.translator()?.tables()
    }

    /// The shards of a stateful translator in a cluster.
    #[inline]
    pub(crate) fn shards(&self) -> Option<&Shards> {
        self.translator()?.shards()
    }

    /// Translates, encapsulates or decapsulates a packet in place.
    #[inline]
    pub fn translate(
        &self,
        packet: &mut Packet<'_>,
        now: Duration,
        state: &mut State,
        trace: &mut impl Trace,
    ) -> Verdict {
        match self {
            Core::Translator(translator) => translator.translate(packet, now, state, trace),
            Core::Softwire(softwire) => softwire.translate(packet, now, state, trace),
        }
    }

    /// Whether packets may wait here, so that there is something to do by time.
    pub(crate) fn keeps_packets(&self) -> bool {
        match self {
            Core::Translator(translator) => translator.is_stateful(),
            Core::Softwire(_) => true,
        }
    }

    /// The shard of an IPv6 fragment that another gateway of the cluster needs as it is.
    pub(crate) fn fragment_elsewhere(&self, packet: &[u8], state: &State) -> Option<u16> {
        self.translator()?.fragment_elsewhere(packet, state)
    }

    /// Whether a packet has to wait for others.
    #[inline]
    pub(crate) fn wait(&self, packet: &[u8]) -> Option<Wait> {
        match self {
            Core::Translator(translator) => {
                let waits = translator.is_stateful() && may_be_fragment(packet);
                waits.then_some(Wait::Packet(Origin::Network))
            }
            Core::Softwire(softwire) => match softwire.part(packet) {
                Part::Whole => None,
                Part::Fragment => Some(Wait::Packet(Origin::Softwire)),
                Part::Inside { at, remote } => Some(Wait::Inside(at, Origin::Inside(remote))),
            },
        }
    }
}
