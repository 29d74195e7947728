//! A stateful mapper with a fixed table.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::Config;
use crate::addr::{Mapped, Unmapped, Via};
use crate::mapper::{Mapper, Outgoing, Ports};
use crate::mapping;
use crate::stop::Stop;
use crate::trace::{Step, Trace};
use crate::tuple::{Incoming, Transport};
use crate::verdict::DropReason;

/// (X',x) <--> (T,t) of a protocol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) protocol: u8,
    pub(super) v6: (Ipv6Addr, u16),
    pub(super) v4: (Ipv4Addr, u16),
}

#[derive(Clone, Debug)]
pub(super) struct Fixed {
    pub(super) config: Config,
    pub(super) table: Vec<Entry>,
    /// Refuses in `map`, as a full table does.
    pub(super) full: bool,
}

impl Fixed {
    fn find6(&self, addr: Ipv6Addr, transport: Transport, port: u16) -> Result<Entry, DropReason> {
        let (protocol, v6) = (transport.protocol(), (addr, port));
        let found = self.table.iter().find(|entry| entry.protocol == protocol && entry.v6 == v6);
        found.copied().ok_or(DropReason::NoBib)
    }

    fn find4(&self, addr: Ipv4Addr, transport: Transport, port: u16) -> Result<Entry, DropReason> {
        let (protocol, v4) = (transport.protocol(), (addr, port));
        let found = self.table.iter().find(|entry| entry.protocol == protocol && entry.v4 == v4);
        found.copied().ok_or(DropReason::NoBib)
    }

    fn from4(&self, addr: Ipv4Addr) -> Result<Mapped<Ipv6Addr>, DropReason> {
        mapping::map_v4_by_pool6(&self.config, addr).map_err(Unmapped::as_source)
    }

    fn from6(&self, addr: Ipv6Addr) -> Result<Mapped<Ipv4Addr>, DropReason> {
        mapping::map_v6_by_pool6(&self.config, addr).map_err(Unmapped::as_destination)
    }
}

/// The ports with this one in the place of the source.
fn with_src(transport: Transport, src: u16) -> Ports {
    match transport {
        Transport::IcmpQuery { .. } => Ports { src, dst: src },
        _ => Ports { src, dst: transport.ports().1 },
    }
}

/// The ports with this one in the place of the destination.
fn with_dst(transport: Transport, dst: u16) -> Ports {
    match transport {
        Transport::IcmpQuery { .. } => Ports { src: dst, dst },
        _ => Ports { src: transport.ports().0, dst },
    }
}

fn by_table<A>(addr: A) -> Mapped<A> {
    Mapped { addr, via: Via::Bib }
}

impl Mapper for Fixed {
    type Admitted4 = ();
    type Admitted6 = Mapped<Ipv4Addr>;

    const HAIRPIN: Step = Step::HairpinPool4;

    fn admit_v4(
        &mut self,
        incoming: &Incoming<'_, Ipv4Addr>,
        _trace: &mut impl Trace,
    ) -> Result<(), Stop> {
        if !incoming.is_icmp_error {
            incoming.transport()?;
        }
        Ok(())
    }

    fn map_v4(
        &mut self,
        incoming: &Incoming<'_, Ipv4Addr>,
        (): (),
        _trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv6Addr>, Stop> {
        if self.full {
            return Err(DropReason::SessionsFull.into());
        }
        let src = self.from4(incoming.src)?;
        if incoming.is_icmp_error {
            let quoted = incoming.quoted()?;
            let transport = quoted.transport()?;
            let entry = self.find4(quoted.src, transport, transport.ports().0)?;
            return Ok(Outgoing { src, dst: by_table(entry.v6.0), ports: None });
        }
        let transport = incoming.transport()?;
        let entry = self.find4(incoming.dst, transport, transport.ports().1)?;
        let ports = Some(with_dst(transport, entry.v6.1));
        Ok(Outgoing { src, dst: by_table(entry.v6.0), ports })
    }

    fn map_quoted_v4(
        &mut self,
        quoted: &Incoming<'_, Ipv4Addr>,
    ) -> Result<Outgoing<Ipv6Addr>, DropReason> {
        let transport = quoted.transport()?;
        let entry = self.find4(quoted.src, transport, transport.ports().0)?;
        let ports = Some(with_src(transport, entry.v6.1));
        Ok(Outgoing { src: by_table(entry.v6.0), dst: self.from4(quoted.dst)?, ports })
    }

    fn admit_v6(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        _trace: &mut impl Trace,
    ) -> Result<Mapped<Ipv4Addr>, Stop> {
        if !incoming.is_icmp_error {
            incoming.transport()?;
        }
        Ok(self.from6(incoming.dst)?)
    }

    fn hairpins(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        admitted: &Mapped<Ipv4Addr>,
    ) -> Result<bool, Stop> {
        let is_own = self.table.iter().any(|entry| entry.v4.0 == admitted.addr);
        // The gateway's own services keep their ports.
        let is_service = !incoming.is_icmp_error && incoming.transport()?.ports().1 == 22;
        Ok(is_own && !is_service)
    }

    fn map_v6(
        &mut self,
        incoming: &Incoming<'_, Ipv6Addr>,
        dst: Mapped<Ipv4Addr>,
        _trace: &mut impl Trace,
    ) -> Result<Outgoing<Ipv4Addr>, Stop> {
        if self.full {
            return Err(DropReason::SessionsFull.into());
        }
        if incoming.is_icmp_error {
            let quoted = incoming.quoted()?;
            let transport = quoted.transport()?;
            let entry = self.find6(quoted.dst, transport, transport.ports().1)?;
            return Ok(Outgoing { src: by_table(entry.v4.0), dst, ports: None });
        }
        let transport = incoming.transport()?;
        let entry = self.find6(incoming.src, transport, transport.ports().0)?;
        let ports = Some(with_src(transport, entry.v4.1));
        Ok(Outgoing { src: by_table(entry.v4.0), dst, ports })
    }

    fn map_quoted_v6(
        &mut self,
        quoted: &Incoming<'_, Ipv6Addr>,
    ) -> Result<Outgoing<Ipv4Addr>, DropReason> {
        let transport = quoted.transport()?;
        let entry = self.find6(quoted.dst, transport, transport.ports().1)?;
        let ports = Some(with_dst(transport, entry.v4.1));
        Ok(Outgoing { src: self.from6(quoted.src)?, dst: by_table(entry.v4.0), ports })
    }

    fn shares_addresses(&self) -> bool {
        true
    }
}
