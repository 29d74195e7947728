//! RFC 6146 sections 3.5.1.1 and 3.5.2.3: whether the core has chosen well.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::filter::{Model, Opener, Outcome, Peek};
use super::packet::{Datagram, End4, End6, Transport};
use super::table::{Bib, Subscriber};

/// Ports are kept on their side of this one.
const FIRST_UNPRIVILEGED: u16 = 1024;

impl Model {
    /// A BIB entry for a host that has none. `Err`: a bad choice.
    pub(super) fn bind(
        &mut self,
        packet: &Datagram<Ipv6Addr>,
        peek: &dyn Peek,
    ) -> Result<Result<End4, Outcome>, String> {
        let (transport, v6) = (packet.transport, packet.src);
        let prefix = self.rules.prefix(v6.0);
        let granted = peek.granted(prefix);
        if let Some((v4, _)) = &granted
            && !self.rules.pool4.contains(v4)
        {
            return Err(format!("{v4} is no address of the pool"));
        }
        let is_new = !self.subscribers.iter().any(|known| known.prefix == prefix);
        if is_new && granted.is_none() {
            return self.no_grant(is_new, peek);
        }
        let now = self.now;
        let known = self.subscriber(prefix, now);
        // One that the operator's BIB entries made has no address before it needs one.
        let v4 = granted.as_ref().map(|(v4, _)| *v4);
        if known.v4.is_some() && known.v4 != v4 {
            return Err(format!("the address of {prefix} was changed to {v4:?}"));
        }
        known.v4 = v4;
        let most = self.rules.most_ports[transport as usize];
        if most != 0 && self.ports_of(prefix, transport) >= most as usize {
            return Ok(Err(Outcome::Refused("port_quota")));
        }
        // No entry for a session that would be refused.
        if let Err(refused) = self.has_room(v6, Opener::V6, peek) {
            return Ok(Err(refused));
        }
        let size = self.rules.sizes[0];
        if self.bibs.len() + self.garbage[0] >= size {
            return Ok(Err(Outcome::Refused("bib_full")));
        }
        let rested = self.wake(transport, v6);
        let Some((v4, blocks)) = granted else {
            return self.no_grant(is_new, peek);
        };
        let free = self.free(transport, v4, &blocks, prefix);
        let Some(chosen) = peek.chosen(transport, v6) else {
            // What was used up a moment ago is not searched again, also for others who have the same ports: a
            // port that has come free since the last sweep need not be seen, and one that rests for another
            // host of the subscriber may go on resting (RFC 6888 REQ-8b: MAY).
            let free = free.iter().filter(|port| !self.rests(transport, (v4, **port))).count();
            if free != 0 && self.garbage[0] == 0 {
                return Err(format!("no port for {v6:?}, but {free} are free"));
            }
            self.check_extension(v4, blocks.len(), peek)?;
            return Ok(Err(Outcome::Refused("pool_exhausted")));
        };
        // RFC 6888 REQ-8: the port rested for this very host (a block may have come only now).
        match rested.filter(|(addr, port)| *addr == v4 && free.contains(port)) {
            Some(own) if own == chosen => {}
            Some(own) if self.rules.blocks.is_none() => {
                return Err(format!("{chosen:?} instead of {own:?}, which rested for it"));
            }
            _ => self.judge(packet, chosen, v4, &free)?,
        }
        self.take_over(transport, chosen);
        self.bibs.push(Bib {
            transport,
            v6,
            v4: chosen,
            is_static: false,
            resting: None,
            created: self.now,
            had_session: false,
        });
        Ok(Ok(chosen))
    }

    /// The subscriber of a prefix; a new one has no address yet.
    pub(super) fn subscriber(&mut self, prefix: Ipv6Addr, now: u64) -> &mut Subscriber {
        let place = self.subscribers.iter().position(|known| known.prefix == prefix);
        let place = place.unwrap_or_else(|| {
            let new = [(u64::MAX, 0); 2];
            self.subscribers.push(Subscriber { prefix, v4: None, last_used: now, new });
            self.subscribers.len() - 1
        });
        &mut self.subscribers[place]
    }

    /// A subscriber without ports that was given nothing.
    fn no_grant(&self, is_new: bool, peek: &dyn Peek) -> Result<Result<End4, Outcome>, String> {
        let left = self.rules.pool4.iter().any(|v4| self.blocks_left(*v4, peek) != 0);
        if left || self.rules.blocks.is_none() {
            if is_new && self.subscribers.len() >= self.rules.sizes[2] {
                return Ok(Err(Outcome::Refused("subscribers_full")));
            }
            return Err("a subscriber was given nothing, but there is something left".into());
        }
        Ok(Err(Outcome::Refused("pool_exhausted")))
    }

    /// A subscriber whose ports are used up and who was given no further block.
    fn check_extension(&self, v4: Ipv4Addr, has: usize, peek: &dyn Peek) -> Result<(), String> {
        match self.rules.blocks {
            Some((_, most)) if has < most && self.blocks_left(v4, peek) != 0 => {
                Err(format!("no further block of {v4}, but there are some"))
            }
            _ => Ok(()),
        }
    }

    /// Blocks of an address that no subscriber has.
    fn blocks_left(&self, v4: Ipv4Addr, peek: &dyn Peek) -> usize {
        let (low, high) = self.rules.ports;
        let size = self.rules.blocks.map_or(1, |(size, _)| size);
        let all = (usize::from(high - low) + 1) / usize::from(size);
        let granted = self.subscribers.iter().filter_map(|known| peek.granted(known.prefix));
        let given: usize =
            granted.filter(|(addr, _)| *addr == v4).map(|(_, blocks)| blocks.len()).sum();
        all - given
    }

    /// The transport address that rests for a host; it rests no more.
    fn wake(&mut self, transport: Transport, v6: End6) -> Option<End4> {
        let place = self
            .bibs
            .iter()
            .position(|bib| bib.transport == transport && bib.v6 == v6 && bib.resting.is_some())?;
        self.garbage[0] += 1;
        Some(self.bibs.remove(place).v4)
    }

    fn rests(&self, transport: Transport, v4: End4) -> bool {
        self.bibs
            .iter()
            .any(|bib| (bib.transport, bib.v4) == (transport, v4) && bib.resting.is_some())
    }

    /// Ports of an address that nobody holds.
    fn free(
        &self,
        transport: Transport,
        v4: Ipv4Addr,
        blocks: &[(u16, u16)],
        prefix: Ipv6Addr,
    ) -> Vec<u16> {
        let is_free = |port: &u16| {
            !self.bibs.iter().any(|bib| {
                let own_rest = bib.resting.is_some() && self.rules.prefix(bib.v6.0) == prefix;
                bib.transport == transport && bib.v4 == (v4, *port) && !own_rest
            })
        };
        blocks.iter().flat_map(|(low, high)| *low..=*high).filter(is_free).collect()
    }

    fn judge(
        &self,
        packet: &Datagram<Ipv6Addr>,
        chosen: End4,
        v4: Ipv4Addr,
        free: &[u16],
    ) -> Result<(), String> {
        if chosen.0 != v4 {
            return Err(format!("{chosen:?} instead of a port of {v4}: not paired"));
        }
        if chosen.1 == 0 || !free.contains(&chosen.1) {
            return Err(format!("{chosen:?} is not free"));
        }
        let class = |port: u16| port < FIRST_UNPRIVILEGED;
        let suits = |port: u16| class(port) == class(packet.src.1);
        let even = |port: u16| port & 1 == packet.src.1 & 1;
        let wrong = match packet.transport {
            Transport::Icmp => false,
            _ if free.iter().any(|port| suits(*port)) && !suits(chosen.1) => true,
            Transport::Udp => {
                let both = |port: u16| suits(port) && even(port);
                free.iter().any(|port| both(*port)) && !both(chosen.1)
            }
            Transport::Tcp => false,
        };
        if wrong {
            return Err(format!("{chosen:?} for {:?}: wrong range or parity", packet.src));
        }
        Ok(())
    }

    /// A port that rested for another host of the same subscriber rests no more.
    fn take_over(&mut self, transport: Transport, chosen: End4) {
        let before = self.bibs.len();
        self.bibs.retain(|bib| (bib.transport, bib.v4) != (transport, chosen));
        self.garbage[0] += before - self.bibs.len();
    }

    /// BIB entries that a subscriber's quota counts.
    pub fn ports_of(&self, prefix: Ipv6Addr, transport: Transport) -> usize {
        let counts = |bib: &&Bib| {
            bib.transport == transport
                && bib.resting.is_none()
                && self.rules.prefix(bib.v6.0) == prefix
        };
        self.bibs.iter().filter(counts).count()
    }
}
