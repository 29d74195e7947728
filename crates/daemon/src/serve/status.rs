//! What is known of a translator that runs.

use fordway_config::Attach;
use fordway_engine::Core;
use fordway_net::{Change, Netlink};
use fordway_tun::OffloadReport;
use fordway_xlat::DropReason;

use crate::apply::kernel::causes;
use crate::apply::running::Running;
use crate::apply::upkeep::Upkeep;
use crate::plan::placement::Intent;
use crate::plan::resolve::prefix_name;
use fordway_control::{
    ClatStatus, DirectionStats, IoStats, KernelStats, OffloadStatus, SoftwireStatus, Totals,
    TranslatorStats, TranslatorStatus,
};

impl Running {
    /// What runs.
    pub(crate) fn status(&self, device_name: &mut impl FnMut(u32) -> String) -> TranslatorStatus {
        let (config, core) = (&self.config, self.engine.core());
        let (translator, device) = (core.translator().map(|it| it.config()), self.engine.device());
        let wanted = self.host.as_ref().map(Upkeep::wanted).unwrap_or_default();
        TranslatorStatus {
            name: config.name.to_string(),
            mode: config.mode_name().to_owned(),
            engine: if self.kernel.is_some() { "kernel" } else { "user" }.to_owned(),
            engine_reason: match &self.intent {
                Intent::User(why) => why.clone(),
                Intent::Kernel if config.engine == fordway_config::Engine::Auto => {
                    "engine = \"auto\": the host allows it".to_owned()
                }
                Intent::Kernel => "configured".to_owned(),
            },
            attach: match self.place.attach {
                Attach::Uplink => "uplink",
                Attach::Ingress => "ingress",
                Attach::Xdp => "xdp",
                Attach::Auto | Attach::Interface => "interface",
            }
            .to_owned(),
            attach_reason: self.place.reason.clone(),
            forward: self.forwarding().map(|it| it.as_str().to_owned()),
            kernel: self.kernel.as_ref().map(|kernel| kernel.status(device_name, self.objection())),
            interface: device.name().to_owned(),
            ifindex: device.ifindex(),
            adopted: !self.own,
            queues: self.queues,
            queue_length: self.queue_length(),
            receive_queue_full: self.unread(),
            processors: self.engine.processors().to_vec(),
            offloads: offload_status(device.offloads()),
            mtu: self.facts.resolved.mtu6,
            mtu_from: self.facts.mtu_from.clone(),
            pool6: config.pool6().iter().map(ToString::to_string).collect(),
            eam: translator.map_or(0, |translator| translator.eam.entries().len()),
            icmp_source4: config.icmp_source4,
            icmp_source6: translator.and_then(|translator| translator.icmp_source6),
            clat: config.clat().map(|clat| ClatStatus {
                v4: clat.v4,
                v6: self.facts.resolved.clat_v6,
                pref64: prefix_name(clat),
                uplink: self.facts.uplink.as_ref().map(|uplink| uplink.name.clone()),
            }),
            nat64: self.nat64_status(),
            softwire: self.softwire_status(&core),
            managed: config.manage,
            addresses: applied(wanted, |it| matches!(it, Change::Address(_))),
            routes: applied(wanted, |it| matches!(it, Change::Route(_))),
            settings: applied(wanted, |it| matches!(it, Change::Sysctl { .. })),
            uptime_seconds: self.started().elapsed().as_secs(),
        }
    }

    fn softwire_status(&self, core: &Core) -> Option<SoftwireStatus> {
        let (config, softwire) = (self.config.softwire()?, core.softwire()?);
        let paths = softwire.bindings().iter();
        let paths = paths.filter(|entry| entry.path.known(fordway_engine::monotonic()).is_some());
        let client = config.client();
        Some(SoftwireStatus {
            role: if client.is_some() { "client" } else { "tep" }.to_owned(),
            local: self.facts.resolved.clat_v6,
            remote: client.map(|client| client.remote),
            v4: client.and_then(|client| client.v4),
            bindings: softwire.bindings().len(),
            lowered_paths: paths.count(),
        })
    }

    /// How many packets each of its queues holds, as the interface has it now.
    fn queue_length(&self) -> u32 {
        let link = Netlink::open().and_then(|mut netlink| netlink.link(self.name()));
        link.map_or(0, |link| link.queue_length)
    }

    /// Packets that the interface has dropped since its queues were opened, because a queue was full.
    fn unread(&self) -> u64 {
        let dropped = Netlink::open().and_then(|mut netlink| netlink.tx_dropped(self.name()));
        dropped.map_or(0, |dropped| dropped.saturating_sub(self.unread_before))
    }

    /// What has been carried until now.
    pub(crate) fn stats(&self) -> TranslatorStats {
        let queues: Vec<Totals> = self.counters().iter().map(|counters| queue(counters)).collect();
        let mut totals = Totals::default();
        for queue in &queues {
            totals.add(queue);
        }
        // A kernel engine whose counters can't be read has carried what it has carried; the user
        // engine's are told all the same.
        let kernel = self.kernel.as_ref().and_then(|kernel| kernel.totals().ok());
        let kernel = kernel.map(|kernel| kernel_stats(&kernel));
        if let Some(kernel) = &kernel {
            totals.add(&kernel.as_totals());
        }
        // The device counts for all of its queues together.
        let unread = totals.drops.entry(DropReason::ReceiveQueueFull.label().to_owned());
        *unread.or_default() += self.unread();
        TranslatorStats {
            name: self.name().to_owned(),
            mode: self.config.mode_name().to_owned(),
            totals,
            queues,
            kernel,
            nat64: self.nat64_stats(),
        }
    }
}

fn queue(counters: &fordway_engine::QueueCounters) -> Totals {
    let io = counters.io.totals();
    Totals {
        io: IoStats {
            receive_errors: io.receive_errors,
            send_full: io.send_full,
            send_down: io.send_down,
            send_no_buffers: io.send_no_buffers,
            send_refused: io.send_refused,
        },
        ..Totals::read(&counters.core)
    }
}

fn kernel_stats(totals: &fordway_bpf::Totals) -> KernelStats {
    let [v4_to_v6, v6_to_v4] = totals.directions.map(|direction| DirectionStats {
        packets: direction.packets,
        segments: direction.segments,
        octets: direction.octets,
        fragments: direction.fragments,
    });
    let drops = DropReason::ALL.iter();
    KernelStats {
        v4_to_v6,
        v6_to_v4,
        drops: drops.map(|it| (it.label().to_owned(), totals.drops(*it))).collect(),
        passed_on: causes(&totals.passed_on),
        left_to_stack: causes(&totals.left_to_stack),
        unmatched: totals.unmatched,
        elsewhere: totals.elsewhere,
        tagged: totals.tagged,
        routed: totals.routed,
        handed_over: totals.handed_over,
        measured_packets: totals.measured_packets,
        measured_ns: totals.measured_ns,
        trace_lost: totals.trace_lost,
    }
}

fn offload_status(report: OffloadReport) -> OffloadStatus {
    let names = |text: String| match text.as_str() {
        "none" => Vec::new(),
        text => text.split(", ").map(str::to_owned).collect(),
    };
    OffloadStatus {
        granted: names(report.granted.to_string()),
        refused: names(report.refused().to_string()),
    }
}

/// The changes of a kind, without their verb.
pub(super) fn applied(changes: &[Change], is_wanted: fn(&Change) -> bool) -> Vec<String> {
    let without_verb = |text: String| {
        let verbs = ["add address ", "add route ", "set sysctl "];
        verbs.iter().find_map(|verb| text.strip_prefix(verb)).map_or(text.clone(), str::to_owned)
    };
    changes.iter().filter(|it| is_wanted(it)).map(|it| without_verb(it.to_string())).collect()
}
