//! A translator without a host: for `explain` and `pcap`.

use std::sync::Arc;
use std::time::Duration;

use fordway_config::{Attach, Resolved, SoftwireEnd, Source6};
use fordway_daemon::failure::Failure;
use fordway_engine::Core;
use fordway_softwire::{Bindings, Part};
use fordway_xlat::counters::Arrival;
use fordway_xlat::nat64::{Heap, Nat64, Nat64Error, Settings, Sizes};
use fordway_xlat::reassembly::{BUFFER_LEN, Limits, Origin, Outcome as Assembled, Reassembler};
use fordway_xlat::trace::Trace;
use fordway_xlat::{
    Counters, Direction, DropReason, HEADROOM, HopCount, Offload, Packet, State, Translator,
    Verdict,
};

use fordway_wire::{ipv6, protocol, put_u8, put_u16};

use crate::cli::Source;

/// IPv6 path MTU where the file leaves it to the host, in octets.
const MTU: u32 = 1500;

/// Room behind a packet for what translation adds there, in octets.
const TAILROOM: usize = 1024;

/// Runs the core on packets that come from files.
pub(crate) struct Offline {
    core: Core,
    state: State,
    counters: Counters,
    buffer: Vec<u8>,
    /// A stateful translator gets fragments when their packet is whole (RFC 6146 section 3.4).
    fragments: Option<Reassembler>,
}

/// Entries of each table: enough for what a capture holds, and little memory.
const ENTRIES: u32 = 65_536;

/// Empty tables for a stateful translator, with its static BIB entries. The key of the hashes is fixed: the same
/// packets give the same ports. Devices in pool4 have no addresses here.
fn tables(config: &fordway_config::Translator) -> Result<Option<Arc<Nat64>>, Nat64Error> {
    let settings = match (config.nat64(), config.dynamic4()) {
        (Some(nat64), _) => nat64.settings(|_| Vec::new()),
        (None, Some(dynamic4)) => dynamic4.settings(),
        (None, None) => return Ok(None),
    };
    let least = |entries: u32| entries.min(ENTRIES);
    let Sizes { bibs, sessions, subscribers } = settings.sizes;
    let sizes =
        Sizes { bibs: least(bibs), sessions: least(sessions), subscribers: least(subscribers) };
    let settings = fordway_daemon::settings::nat_pt::with_gateway(
        Settings { sizes, ..settings },
        config,
        None,
    );
    let nat64 = Nat64::new(settings, Arc::new(Heap::new(&sizes, [1, 2])))?;
    // What could not be made was refused when the file was read.
    fordway_daemon::settings::nat_pt::bind_fixed(&nat64, Duration::ZERO);
    nat64.make_static_bib(Duration::ZERO);
    Ok(Some(Arc::new(nat64)))
}

/// What became of a packet.
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    /// What leaves: the translated packet or its fragments, or the ICMP error.
    pub(crate) packets: Vec<Vec<u8>>,
}

impl Offline {
    /// The translator of a configuration, with nothing taken from the host: the path MTU is 1500
    /// octets unless configured, and ICMPv6 errors need a configured source.
    pub(crate) fn new(source: &Source) -> Result<Offline, Failure> {
        let config = &source.translator;
        if config.is_automatic() {
            return Err(Failure::usage(
                "pref64 = \"auto\": the prefix is left to the network, which is not looked at here",
                "give the options instead of a file, with the prefix that fordway status or fordway \
                 discover shows: --pref64 PREFIX --v6 ADDR",
            ));
        }
        let own = config.softwire().and_then(|softwire| match &softwire.end {
            SoftwireEnd::Tep { local, .. } => Some(*local),
            SoftwireEnd::Client(client) => client.local,
        });
        let clat_v6 = config.clat().and_then(|clat| clat.v6).or(own).or(source.v6);
        if config.softwire().is_some() && clat_v6.is_none() {
            return Err(Failure::usage(
                "the client's IPv6 address is left to the host, which is not looked at here",
                "write --v6 ADDR with the address that fordway status shows",
            ));
        }
        if config.clat().is_some() && clat_v6.is_none() {
            return Err(Failure::usage(
                "the CLAT's IPv6 address is left to the host, which is not looked at here",
                "write --v6 ADDR with the address that fordway status shows",
            ));
        }
        let resolved = Resolved {
            mtu6: config.mtu.unwrap_or(MTU),
            icmp_source6: match config.icmp_source6 {
                Source6::Address(address) => Some(address),
                Source6::Auto | Source6::Off => None,
            },
            clat_v6,
            queues: 1,
            attach: Attach::Interface,
        };
        let failed = |error: String| Failure::failed(format!("{}: {error}", config.name));
        if let Some(softwire) = config.softwire() {
            let mut bindings = Bindings::default();
            bindings.extend(softwire.bindings(clat_v6));
            let core = config
                .softwire_core(&resolved, [1, 2], bindings)
                .map_err(|error| failed(error.to_string()))?;
            if let Some(core) = core {
                return Ok(Offline::of(Arc::new(core).into(), true));
            }
        }
        let core = config.core(&resolved).map_err(|error| failed(error.to_string()))?;
        let translator = match tables(config).map_err(|error| failed(error.to_string()))? {
            None => Translator::new(core),
            Some(nat64) if config.dynamic4().is_some() => Translator::dynamic4(core, nat64),
            Some(nat64) => Translator::nat64(core, nat64),
        };
        let translator = translator.map_err(|error| failed(error.to_string()))?;
        let waits = translator.is_stateful();
        Ok(Offline::of(Arc::new(translator).into(), waits))
    }

    fn of(core: Core, waits: bool) -> Offline {
        Offline {
            fragments: waits.then(|| Reassembler::new(Limits::default())),
            core,
            // A fixed first identification: the same input gives the same output.
            state: State::new(1),
            counters: Counters::default(),
            buffer: Vec::new(),
        }
    }

    /// Translates one packet that begins with its IP header. `now` is the time of its arrival.
    pub(crate) fn translate(
        &mut self,
        bytes: &[u8],
        now: Duration,
        trace: &mut impl Trace,
    ) -> Outcome {
        match self.assemble(bytes, now) {
            Ok(None) => self.translate_whole(bytes, now, trace),
            Ok(Some(whole)) => self.translate_whole(&whole, now, trace),
            Err(verdict) => Outcome { verdict, packets: Vec::new() },
        }
    }

    /// The packet that a fragment makes whole; `None`: it is no fragment, or they don't matter. Or what becomes
    /// of the fragment.
    fn assemble(&mut self, bytes: &[u8], now: Duration) -> Result<Option<Vec<u8>>, Verdict> {
        let Some(fragments) = &mut self.fragments else { return Ok(None) };
        let expired = fragments.expire(now);
        let mut buffer = vec![0; BUFFER_LEN];
        let (at, origin) = match &self.core {
            Core::Translator(_) => (0, Origin::Network),
            Core::Softwire(softwire) => match softwire.part(bytes) {
                Part::Inside { at, remote } => (at, Origin::Inside(remote)),
                Part::Fragment => (0, Origin::Softwire),
                Part::Whole => return Ok(None),
            },
        };
        let (outer, fragment) = bytes.split_at(at.min(bytes.len()));
        let assembled = fragments.insert(origin, fragment, now, &mut buffer);
        (0..expired).for_each(|_| self.counters.drop(DropReason::FragmentTimeout));
        match assembled {
            Assembled::Whole => Ok(None),
            Assembled::Complete(range) => {
                let mut whole = outer.get(..ipv6::HEADER_LEN).unwrap_or_default().to_vec();
                if !whole.is_empty() {
                    put_u16(&mut whole, 4, range.len() as u16);
                    put_u8(&mut whole, 6, protocol::IPV4);
                }
                whole.extend_from_slice(&buffer[range]);
                Ok(Some(whole))
            }
            Assembled::Incomplete | Assembled::Duplicate => Err(Verdict::Stored),
            Assembled::Dropped { reason, fragments } => {
                (0..fragments).for_each(|_| self.counters.drop(reason));
                Err(Verdict::Drop(reason))
            }
        }
    }

    fn translate_whole(&mut self, bytes: &[u8], now: Duration, trace: &mut impl Trace) -> Outcome {
        self.buffer.clear();
        self.buffer.resize(HEADROOM, 0);
        self.buffer.extend_from_slice(bytes);
        let end = self.buffer.len();
        self.buffer.resize(end + TAILROOM, 0);
        let mut packet = Packet::new(&mut self.buffer, HEADROOM..end, Offload::default());
        let verdict = self.core.translate(&mut packet, now, &mut self.state, trace);
        let packets = match verdict {
            Verdict::Forward | Verdict::Reply(_) => packet
                .fragments()
                .map(|fragment| [fragment.head(), fragment.body].concat())
                .collect(),
            Verdict::Drop(_) | Verdict::Stored | Verdict::Pass | Verdict::Elsewhere(_) => {
                Vec::new()
            }
        };
        let arrival = Arrival { direction: Direction::of(bytes), octets: bytes.len(), segments: 1 };
        self.counters.record(arrival, verdict, packets.len());
        self.counters.suppress(self.state.take_suppressed());
        Outcome { verdict, packets }
    }

    /// What was carried and dropped so far.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Where the core counts as a hop.
    pub(crate) fn hop_count(&self) -> HopCount {
        match &self.core {
            Core::Translator(translator) => translator.config().decrement_hop_limit,
            Core::Softwire(softwire) => softwire.settings().hop_count,
        }
    }
}
