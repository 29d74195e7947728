//! RFC 6146 section 3.5 to 3.8: what a packet does to the tables, and what becomes of it.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::packet::{Datagram, End4, End6, Quoted4, Quoted6, Transport};
use super::table::{Bib, Rules, Session, Subscriber};
use super::tcp::{self, Life, State};

/// The model: what an operator has set, and the tables.
#[derive(Clone, Debug)]
pub struct Model {
    /// What an operator has set.
    pub rules: Rules,
    /// The BIB, resting entries too.
    pub bibs: Vec<Bib>,
    /// The sessions.
    pub sessions: Vec<Session>,
    /// The subscribers.
    pub subscribers: Vec<Subscriber>,
    /// Unsolicited SYNs that are kept.
    pub stored: Vec<StoredSyn>,
    /// No new sessions.
    pub draining: bool,
    /// The time in seconds.
    pub now: u64,
    /// Entries that are gone, but keep their place until the next sweep: BIB, sessions.
    pub(super) garbage: [usize; 2],
}

/// An unsolicited SYN that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredSyn {
    /// (X,x).
    pub to: End4,
    /// (Y,y).
    pub from: End4,
    /// When it came.
    pub since: u64,
    /// It came from an IPv6 host.
    pub hairpin: bool,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It leaves over IPv4.
    To4(Datagram<Ipv4Addr>),
    /// It leaves over IPv6.
    To6(Datagram<Ipv6Addr>),
    /// An ICMP error leaves over IPv4.
    Error4(Quoted4),
    /// An ICMP error leaves over IPv6.
    Error6(Quoted6),
    /// It is dropped for a reason, and its sender, an IPv6 host, is told.
    Refused(&'static str),
    /// It is dropped for a reason, and its sender, an IPv4 host, is told.
    RefusedToV4(&'static str),
    /// It is dropped for a reason, and nobody is told.
    Dropped(&'static str),
    /// An unsolicited SYN is kept.
    Stored,
}

/// What the core alone can know.
pub trait Peek {
    /// The IPv4 transport address that it has given a host.
    fn chosen(&self, transport: Transport, v6: End6) -> Option<End4>;

    /// The address of a subscriber and the blocks of ports that it has been given.
    fn granted(&self, prefix: Ipv6Addr) -> Option<(Ipv4Addr, Vec<(u16, u16)>)>;

    /// The reason for which it has refused the packet, if it has, and whether it has told the sender.
    fn refused(&self) -> Option<(&str, bool)>;
}

/// Who opens a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Opener {
    V6,
    V4,
}

type Step<T> = Result<T, Outcome>;

fn refuse<T>(reason: &'static str) -> Step<T> {
    Err(Outcome::Refused(reason))
}

fn drop<T>(reason: &'static str) -> Step<T> {
    Err(Outcome::Dropped(reason))
}

impl Model {
    /// Empty tables.
    #[must_use]
    pub fn new(rules: Rules) -> Model {
        Model {
            rules,
            bibs: Vec::new(),
            sessions: Vec::new(),
            subscribers: Vec::new(),
            stored: Vec::new(),
            draining: false,
            now: 0,
            garbage: [0; 2],
        }
    }

    /// A packet from an IPv6 host. `Err`: the core has chosen what it may not choose.
    pub fn from_v6(
        &mut self,
        packet: &Datagram<Ipv6Addr>,
        peek: &dyn Peek,
    ) -> Result<Outcome, String> {
        // 3.5: MUST silently discard what has a source in Pref64::/n; MUST only process what has a
        // destination in it.
        if self.rules.extract(packet.src.0).is_some() {
            return Ok(Outcome::Dropped("loop"));
        }
        let Some((remote, pool6)) = self.rules.extract(packet.dst.0) else {
            // RFC 7915 section 5.4: ICMPv6 is not answered by "administratively prohibited".
            return Ok(match packet.transport {
                Transport::Icmp => Outcome::Dropped("no_mapping_destination"),
                _ => Outcome::Refused("no_mapping_destination"),
            });
        };
        if !self.rules.may_embed(pool6) {
            return Ok(match packet.transport {
                Transport::Icmp => Outcome::Dropped("non_global"),
                _ => Outcome::Refused("non_global"),
            });
        }
        let z = if packet.transport == Transport::Icmp { 0 } else { packet.dst.1 };
        let local = match self.update_from_v6(packet, (remote, z), pool6, peek)? {
            Ok(local) => local,
            Err(outcome) => return Ok(outcome),
        };
        // 3.6: of ICMP the identifier is the only "port".
        let port = if packet.transport == Transport::Icmp { local.1 } else { packet.dst.1 };
        let outgoing = Datagram {
            transport: packet.transport,
            src: local,
            dst: (remote, port),
            flags: packet.flags,
            mark: packet.mark,
        };
        // 3.8: a destination of our own: the outgoing tuple becomes the incoming one.
        if self.owns(packet.transport, outgoing.dst) {
            return Ok(self.arrives_from_v4(&outgoing, Some(pool6), peek));
        }
        Ok(Outcome::To4(outgoing))
    }

    /// A packet from IPv4.
    pub fn from_v4(&mut self, packet: &Datagram<Ipv4Addr>, peek: &dyn Peek) -> Outcome {
        if !self.owns(packet.transport, packet.dst) {
            return Outcome::Dropped("no_mapping_destination");
        }
        // Nobody but the translator itself sends from its own transport addresses.
        let forged = match packet.transport {
            Transport::Icmp => packet.src.0 == packet.dst.0,
            _ => self.rules.in_pool(packet.src),
        };
        if forged {
            return Outcome::Dropped("loop");
        }
        self.arrives_from_v4(packet, None, peek)
    }

    /// An ICMP error from IPv4. 3.5: it changes nothing.
    pub fn error_from_v4(&self, error: &Quoted4) -> Outcome {
        if error.to != error.inner.src.0 {
            return Outcome::Dropped("icmp_inner");
        }
        self.error_arrives_from_v4(error)
    }

    /// An ICMP error from IPv6.
    pub fn error_from_v6(&self, error: &Quoted6) -> Outcome {
        if self.rules.extract(error.router).is_some() {
            return Outcome::Dropped("loop");
        }
        match self.rules.extract(error.to) {
            None => return Outcome::Dropped("no_mapping_destination"),
            Some((_, pool6)) if !self.rules.may_embed(pool6) => {
                return Outcome::Dropped("non_global");
            }
            Some(_) => {}
        }
        let inner = &error.inner;
        let remote = self.rules.extract(inner.src.0).filter(|_| error.to == inner.src.0);
        let Some((remote, _)) = remote else {
            return Outcome::Dropped("icmp_inner");
        };
        let Some(bib) = self.in_use(inner.transport, |bib| bib.v6 == inner.dst) else {
            return Outcome::Dropped("no_bib");
        };
        let z = if inner.transport == Transport::Icmp { 0 } else { inner.src.1 };
        if self.session(inner.transport, bib.v4, (remote, z)).is_none() {
            return Outcome::Dropped("no_bib");
        }
        let port = if inner.transport == Transport::Icmp { bib.v4.1 } else { inner.src.1 };
        let quoted = Quoted4 {
            router: bib.v4.0,
            to: remote,
            inner: Datagram { src: (remote, port), dst: bib.v4, ..with4(inner) },
        };
        if self.owns(inner.transport, quoted.inner.src) {
            return self.error_arrives_from_v4(&quoted);
        }
        Outcome::Error4(quoted)
    }

    /// 3.5.1, 3.5.2, 3.5.3: an IPv6 incoming packet.
    fn update_from_v6(
        &mut self,
        packet: &Datagram<Ipv6Addr>,
        remote: End4,
        pool6: usize,
        peek: &dyn Peek,
    ) -> Result<Step<End4>, String> {
        let opens = packet.transport != Transport::Tcp || tcp::is_syn(packet.flags);
        let known = self.in_use(packet.transport, |bib| bib.v6 == packet.src).copied();
        let local = match known {
            Some(bib) => bib.v4,
            None if !opens => return Ok(drop("not_syn")),
            None if self.draining => return Ok(refuse("draining")),
            None => match self.bind(packet, peek)? {
                Ok(local) => local,
                Err(outcome) => return Ok(Err(outcome)),
            },
        };
        if let Some(place) = self.session(packet.transport, local, remote) {
            self.sessions[place].pool6 = pool6;
            if self.answers_stored_syn(place, packet.flags)
                && self.needs_permission(packet.transport, local, remote)
                && self.used_entries() >= self.rules.sizes[1]
            {
                return Ok(refuse("sessions_full"));
            }
            self.refresh(place, true, packet.flags);
            return Ok(Ok(local));
        }
        if !opens {
            // CLOSED, any other packet: SHOULD be translated and forwarded.
            return Ok(Ok(local));
        }
        let opened = self.open(packet.transport, packet.src, local, remote, Opener::V6, peek);
        Ok(opened.map(|place| {
            self.sessions[place].pool6 = pool6;
            local
        }))
    }

    /// 3.5.1, 3.5.2, 3.5.3: an IPv4 incoming packet, from the IPv4 network or hairpinned.
    fn arrives_from_v4(
        &mut self,
        packet: &Datagram<Ipv4Addr>,
        pool6: Option<usize>,
        peek: &dyn Peek,
    ) -> Outcome {
        match self.update_from_v4(packet, pool6, peek) {
            Ok((host, pool6)) => {
                let port = if packet.transport == Transport::Icmp { host.1 } else { packet.src.1 };
                Outcome::To6(Datagram {
                    transport: packet.transport,
                    src: (self.rules.embed(packet.src.0, pool6), port),
                    dst: host,
                    flags: packet.flags,
                    mark: packet.mark,
                })
            }
            // What is refused here is not told: it would tell a scanner.
            Err(Outcome::Refused(reason)) => Outcome::Dropped(reason),
            Err(outcome) => outcome,
        }
    }

    fn update_from_v4(
        &mut self,
        packet: &Datagram<Ipv4Addr>,
        pool6: Option<usize>,
        peek: &dyn Peek,
    ) -> Step<(End6, usize)> {
        let Datagram { transport, src, dst: local, flags, .. } = *packet;
        let hairpin = pool6.is_some();
        let is_tcp = transport == Transport::Tcp;
        let remote = if transport == Transport::Icmp { (src.0, 0) } else { src };
        let syn = is_tcp && tcp::is_syn(flags);
        // A SYN with ACK answers a SYN; it can't be the beginning of a simultaneous open.
        let lone_syn = syn && flags & tcp::ACK == 0;
        if let Some(place) = self.session(transport, local, remote) {
            let session = self.sessions[place];
            if session.is_stored_syn {
                // Nobody has answered the SYN yet: it is no reason to let its sender in.
                return if lone_syn { self.store(packet, hairpin) } else { drop("filtered") };
            }
            self.refresh(place, false, flags);
            return Ok((session.v6, session.pool6));
        }
        // A session has a prefix of its own; what begins here would have the first.
        if !self.rules.may_embed(pool6.unwrap_or(0)) {
            return Err(Outcome::RefusedToV4("non_global"));
        }
        if syn && !self.rules.accept_v4_syn {
            return drop("externally_initiated");
        }
        let Some(bib) = self.in_use(transport, |bib| bib.v4 == local).copied() else {
            if !lone_syn {
                return drop("no_bib");
            }
            return self.store(packet, hairpin);
        };
        if self.rules.by_address {
            if lone_syn {
                let place = self.open(transport, bib.v6, local, remote, Opener::V4, peek)?;
                self.sessions[place].is_stored_syn = true;
                self.sessions[place].lifetime = self.rules.tcp_incoming_syn;
                self.sessions[place].pool6 = pool6.unwrap_or(0);
                return self.store(packet, hairpin);
            }
            if !self.has_asked(transport, local, remote) {
                return drop("filtered");
            }
        }
        if is_tcp && !syn {
            return Ok((bib.v6, pool6.unwrap_or(0)));
        }
        let place = self.open(transport, bib.v6, local, remote, Opener::V4, peek)?;
        self.sessions[place].pool6 = pool6.unwrap_or(0);
        Ok((bib.v6, self.sessions[place].pool6))
    }

    /// 3.5.2.2, CLOSED: the packet is stored, once.
    fn store<T>(&mut self, packet: &Datagram<Ipv4Addr>, hairpin: bool) -> Step<T> {
        let (to, from) = (packet.dst, packet.src);
        if !self.stored.iter().any(|syn| (syn.to, syn.from) == (to, from)) {
            self.stored.push(StoredSyn { to, from, since: self.now, hairpin });
        }
        Err(Outcome::Stored)
    }

    fn error_arrives_from_v4(&self, error: &Quoted4) -> Outcome {
        let inner = &error.inner;
        let mut remote = inner.dst;
        if inner.transport == Transport::Icmp {
            remote.1 = 0;
        }
        let Some(place) = self.session(inner.transport, inner.src, remote) else {
            return Outcome::Dropped("no_bib");
        };
        let session = &self.sessions[place];
        let pool6 = session.pool6;
        let port = if inner.transport == Transport::Icmp { session.v6.1 } else { inner.dst.1 };
        Outcome::Error6(Quoted6 {
            router: self.rules.embed(error.router, pool6),
            to: session.v6.0,
            inner: Datagram {
                transport: inner.transport,
                src: session.v6,
                dst: (self.rules.embed(inner.dst.0, pool6), port),
                flags: inner.flags,
                mark: inner.mark,
            },
        })
    }

    /// A new session of a BIB entry.
    fn open(
        &mut self,
        transport: Transport,
        v6: End6,
        v4: End4,
        remote: End4,
        opener: Opener,
        peek: &dyn Peek,
    ) -> Step<usize> {
        if self.draining {
            return refuse("draining");
        }
        self.count_session(v6, opener, peek)?;
        self.check_room(transport, v4, remote, opener)?;
        let (tcp, lifetime) = match (transport, opener) {
            (Transport::Udp, _) => (None, self.rules.udp),
            (Transport::Icmp, _) => (None, self.rules.icmp),
            (Transport::Tcp, Opener::V6) => (Some(State::V6Init), self.rules.tcp_trans),
            (Transport::Tcp, Opener::V4) => (Some(State::V4Init), self.rules.tcp_trans),
        };
        self.sessions.push(Session {
            transport,
            v6,
            v4,
            remote,
            pool6: 0,
            tcp,
            since: self.now,
            lifetime,
            is_stored_syn: false,
        });
        for bib in &mut self.bibs {
            if (bib.transport, bib.v4) == (transport, v4) {
                bib.had_session = true;
            }
        }
        Ok(self.sessions.len() - 1)
    }

    /// Whether there is room for a session.
    fn check_room(
        &mut self,
        transport: Transport,
        v4: End4,
        remote: End4,
        opener: Opener,
    ) -> Step<()> {
        let size = self.rules.sizes[1];
        // The last eighth is for those inside.
        let most = (size as u64 + 1) * 7 / 8;
        let at_most = 2 * (self.sessions.len() + 1) + self.garbage[1];
        if (at_most as u64) < most {
            return Ok(());
        }
        let used = self.used_entries();
        if opener == Opener::V4 {
            return if used as u64 >= most { refuse("sessions_full") } else { Ok(()) };
        }
        let permission = usize::from(self.needs_permission(transport, v4, remote));
        if used + permission < size {
            return Ok(());
        }
        if used < size {
            // The permission had its place, and dies with the attempt.
            self.garbage[1] += permission;
        }
        refuse("sessions_full")
    }

    /// Whether a host wants to hear of an address: there is a session with it (3.5.1, 3.5.2.2, 3.5.3).
    fn has_asked(&self, transport: Transport, local: End4, remote: End4) -> bool {
        self.sessions.iter().any(|session| {
            (session.transport, session.v4, session.remote.0) == (transport, local, remote.0)
                && !session.is_stored_syn
        })
    }

    /// Whether a session needs a second entry, for the first with its address.
    fn needs_permission(&self, transport: Transport, local: End4, remote: End4) -> bool {
        self.rules.by_address && !self.has_asked(transport, local, remote)
    }

    /// Entries of the session table that are in use: with address-dependent filtering one more for each local transport
    /// address and remote address.
    fn used_entries(&self) -> usize {
        let let_in = self.sessions.iter().filter(|it| self.rules.by_address && !it.is_stored_syn);
        let permissions: HashSet<_> =
            let_in.map(|session| (session.transport, session.v4, session.remote.0)).collect();
        self.sessions.len() + permissions.len() + self.garbage[1]
    }

    /// Whether a packet from the host opens what a stored SYN has begun.
    fn answers_stored_syn(&self, place: usize, flags: u8) -> bool {
        let session = &self.sessions[place];
        let next = session.tcp.map(|state| tcp::next(state, true, flags).0);
        session.is_stored_syn && next.is_some_and(|next| next != State::V4Init)
    }

    /// A packet of a session.
    fn refresh(&mut self, place: usize, from_v6: bool, flags: u8) {
        let accept = self.rules.accept_v4_syn;
        let session = &mut self.sessions[place];
        let Some(state) = session.tcp else {
            if from_v6 || self.rules.refresh_from_v4 {
                session.since = self.now;
            }
            return;
        };
        let (next, life) = tcp::next(state, from_v6, flags);
        if next == State::V4Init && !accept {
            return;
        }
        session.tcp = Some(next);
        session.is_stored_syn &= next == State::V4Init;
        if let Some(life) = life {
            session.since = self.now;
            session.lifetime = match life {
                Life::Est => self.rules.tcp_est,
                Life::Trans => self.rules.tcp_trans,
            };
        }
    }

    /// A BIB entry in use.
    pub(super) fn in_use(
        &self,
        transport: Transport,
        wanted: impl Fn(&Bib) -> bool,
    ) -> Option<&Bib> {
        self.bibs
            .iter()
            .find(|bib| bib.transport == transport && bib.resting.is_none() && wanted(bib))
    }

    /// The place of a session.
    pub fn session(&self, transport: Transport, v4: End4, remote: End4) -> Option<usize> {
        self.sessions.iter().position(|session| {
            (session.transport, session.v4, session.remote) == (transport, v4, remote)
        })
    }

    /// Whether a transport address is the translator's.
    fn owns(&self, transport: Transport, end: End4) -> bool {
        // Identifiers are the translator's to choose: of ICMP the address alone counts.
        if transport == Transport::Icmp {
            return self.rules.pool4.contains(&end.0);
        }
        let fixed = |bib: &Bib| bib.is_static && (bib.transport, bib.v4) == (transport, end);
        self.rules.in_pool(end) || self.bibs.iter().any(fixed)
    }
}

/// The same packet, to be given IPv4 ends.
fn with4(packet: &Datagram<Ipv6Addr>) -> Datagram<Ipv4Addr> {
    let nobody = (Ipv4Addr::UNSPECIFIED, 0);
    Datagram {
        transport: packet.transport,
        src: nobody,
        dst: nobody,
        flags: packet.flags,
        mark: packet.mark,
    }
}
