//! Which engine carries the packets, and where it takes them.

use crate::keys::form::Choice;

/// Which engine carries the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The best that the host allows.
    #[default]
    Auto,
    /// The kernel engine (eBPF), with the user engine for what it leaves; refused where the host
    /// does not allow it.
    Kernel,
    /// The user engine, on a TUN device.
    User,
}

pub(crate) const ENGINE: Choice<Engine> =
    Choice(&[("auto", Engine::Auto), ("kernel", Engine::Kernel), ("user", Engine::User)]);

/// How packets leave that were taken at the ingress of a gateway's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// They arrive from the translator's interface, and the host's stack routes them.
    #[default]
    Stack,
    /// They arrive from the device that they came by, and the host's stack routes them.
    InPlace,
    /// They leave at once by the device to which the kernel's routing sends them.
    Direct,
}

pub(crate) const FORWARD: Choice<Forwarding> = Choice(&[
    (Forwarding::Stack.as_str(), Forwarding::Stack),
    (Forwarding::InPlace.as_str(), Forwarding::InPlace),
    (Forwarding::Direct.as_str(), Forwarding::Direct),
]);

impl Forwarding {
    /// The word in configuration and status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Forwarding::Stack => "stack",
            Forwarding::InPlace => "in-place",
            Forwarding::Direct => "direct",
        }
    }
}

/// What the user engine gathers into super-packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gro {
    /// Nothing.
    Off,
    /// Segments of TCP.
    #[default]
    Tcp,
    /// Segments of TCP, and datagrams of UDP where the kernel has super-packets of UDP.
    TcpUdp,
}

pub(crate) const GRO: Choice<Gro> =
    Choice(&[("off", Gro::Off), ("tcp", Gro::Tcp), ("tcp-udp", Gro::TcpUdp)]);

/// Where packets are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// At the uplink for a CLAT whose uplink is configured, where the kernel engine runs; else at the
    /// interface.
    #[default]
    Auto,
    /// What is routed into the translator's interface.
    Interface,
    /// A CLAT's packets in place, at the device towards the IPv6 network.
    Uplink,
    /// What arrives on [`devices`](crate::Translator::devices) and would be routed into the interface, before it is
    /// routed.
    Ingress,
    /// What arrives on [`devices`](crate::Translator::devices), before the host's own stack sees it.
    Xdp,
}

pub(crate) const ATTACH: Choice<Attach> = Choice(&[
    ("auto", Attach::Auto),
    ("interface", Attach::Interface),
    ("uplink", Attach::Uplink),
    ("ingress", Attach::Ingress),
    ("xdp", Attach::Xdp),
]);

/// Packets from IPv4 that programs leave to the user engine for one reason, per second and processor. The user engine
/// takes some hundred thousand of all reasons on each of its queues.
pub(crate) const PASS_RATE: u32 = 10_000;
