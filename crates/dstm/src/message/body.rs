//! Bodies of messages, by kind.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::options::{self, Options, Writer};
use super::{COOKIE, Malformed};
use fordway_softwire::{Binding, PortSet};

/// The body of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// 1, client to server: requests an address.
    Request {
        /// The client, where each client has its own key.
        id: Option<ClientId>,
        /// From an offer.
        cookie: Option<[u8; COOKIE]>,
        /// The address that it prefers, such as its last one.
        v4: Option<Ipv4Addr>,
        /// The client accepts a port set.
        sharing: bool,
        /// Lifetime in seconds; 0: the server's default.
        lifetime: u32,
        /// Its end of the tunnel, if it is not the address that the message comes from.
        tunnel: Option<Ipv6Addr>,
    },
    /// 2, server to client: a cookie for the next request. Nothing is leased yet.
    Offer {
        /// The proof that the client receives where it sends from.
        cookie: [u8; COOKIE],
    },
    /// 3, server to client: a lease; with lifetime 0 it has ended.
    Ack {
        /// The address.
        v4: Ipv4Addr,
        /// Its ports; `None`: all.
        ports: Option<PortSet>,
        /// Lifetime in seconds from now.
        lifetime: u32,
        /// The other end of the tunnel.
        tep: Ipv6Addr,
    },
    /// 4, client to server: renews a lease.
    Renew {
        /// As in the request.
        id: Option<ClientId>,
        /// As in the request.
        cookie: Option<[u8; COOKIE]>,
        /// The address that it has.
        v4: Ipv4Addr,
        /// The ports that it has.
        ports: Option<PortSet>,
        /// As in the request.
        lifetime: u32,
        /// As in the request.
        tunnel: Option<Ipv6Addr>,
    },
    /// 5, client to server: releases a lease.
    Release {
        /// As in the request.
        id: Option<ClientId>,
        /// As in the request.
        cookie: Option<[u8; COOKIE]>,
        /// The address that it has.
        v4: Ipv4Addr,
        /// The ports that it has.
        ports: Option<PortSet>,
    },
    /// 6, server to client: refuses.
    Refuse {
        /// Why.
        reason: Reason,
        /// With [`Reason::Stale`]: the next message's number must be higher than this one.
        expected: Option<u64>,
        /// Seconds before the client should retry; 0: at once.
        retry: u32,
    },
    /// 16, server to tunnel end point: asks for a Welcome.
    Hello,
    /// 17, tunnel end point to server: answers a Hello.
    Welcome {
        /// Random, new whenever the tunnel end point starts.
        nonce: u64,
        /// The last session that it has accepted; the next one's number is higher.
        session: u64,
    },
    /// 18, server to tunnel end point: adds and removes bindings. Position 0 begins a session; its messages up to the
    /// first one with `whole` hold all bindings.
    Push {
        /// The tunnel end point's.
        nonce: u64,
        /// Grows with each session.
        session: u64,
        /// Counts the messages of the session from 0 on.
        position: u64,
        /// All bindings have been told with this message.
        whole: bool,
        /// At most [`Body::MOST_CHANGES`].
        changes: Vec<Change>,
    },
    /// 19, tunnel end point to server: confirms a Push.
    Done {
        /// The session.
        session: u64,
        /// The position of the next message that it expects.
        position: u64,
    },
}

/// A change of bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a binding for this many seconds.
    Bind(u32, Binding),
    /// Removes the binding of an address and its ports.
    Unbind(Ipv4Addr, Option<PortSet>),
}

/// Why a server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// All addresses are leased.
    Exhausted,
    /// There is no such lease.
    NoLease,
    /// The message's number is not higher than the last one's.
    Stale,
    /// Only addresses with port sets are leased, and the client does not accept one.
    SharedOnly,
    /// The clients of this key have as many leases as they may have.
    Limit,
    /// The server or the tunnel end point failed.
    Trouble,
    /// The client's end of the tunnel is not in the network that it sends from.
    Tunnel,
}

const REASONS: [(u8, Reason); 7] = [
    (1, Reason::Exhausted),
    (2, Reason::NoLease),
    (3, Reason::Stale),
    (4, Reason::SharedOnly),
    (5, Reason::Limit),
    (6, Reason::Trouble),
    (7, Reason::Tunnel),
];

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Exhausted => "all addresses of the pool are lent",
            Reason::NoLease => "the server knows of no such lease",
            Reason::Stale => "the server has seen a later message",
            Reason::SharedOnly => "the server lends port sets only",
            Reason::Limit => "the clients of this key have all that they may have",
            Reason::Trouble => "the server or the tunnel end point has trouble",
            Reason::Tunnel => "this end of the tunnel is not in the /64 that the request came from",
        })
    }
}

/// A client's name: 1 to 64 visible ASCII characters, no space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(String);

/// Why a client's name is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a client's name has 1 to 64 visible ASCII characters and no space")]
pub struct WrongClientId;

impl ClientId {
    /// Takes a name.
    pub fn new(name: &str) -> Result<ClientId, WrongClientId> {
        let fits = (1..=64).contains(&name.len()) && name.bytes().all(|it| it.is_ascii_graphic());
        if fits { Ok(ClientId(name.to_owned())) } else { Err(WrongClientId) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Body {
    /// Most changes in one push: 2 + 44 octets each, and 24 + 34 + 3 * 10 + 3 for the rest.
    pub const MOST_CHANGES: usize = 24;

    pub(super) fn kind(&self) -> u8 {
        match self {
            Body::Request { .. } => 1,
            Body::Offer { .. } => 2,
            Body::Ack { .. } => 3,
            Body::Renew { .. } => 4,
            Body::Release { .. } => 5,
            Body::Refuse { .. } => 6,
            Body::Hello => 16,
            Body::Welcome { .. } => 17,
            Body::Push { .. } => 18,
            Body::Done { .. } => 19,
        }
    }

    pub(super) fn read(kind: u8, all: &Options<'_>) -> Result<Body, Malformed> {
        let id = || all.read(options::CLIENT_ID, client_id);
        let cookie = || all.read(options::COOKIE, options::array);
        let v4 = || all.require(options::ADDRESS, options::v4);
        let ports = || all.read(options::PORT_SET, options::ports);
        let tunnel = || all.read(options::TUNNEL, options::v6);
        let lifetime = || all.require(options::LIFETIME, options::u32);
        let number = |code| all.require(code, options::u64);
        let body = match kind {
            1 => Body::Request {
                id: id()?,
                cookie: cookie()?,
                v4: all.read(options::ADDRESS, options::v4)?,
                sharing: all.read(options::SHARING, empty)?.is_some(),
                lifetime: lifetime()?,
                tunnel: tunnel()?,
            },
            2 => Body::Offer { cookie: all.require(options::COOKIE, options::array)? },
            3 => Body::Ack {
                v4: v4()?,
                ports: ports()?,
                lifetime: lifetime()?,
                tep: all.require(options::TEP, options::v6)?,
            },
            4 => Body::Renew {
                id: id()?,
                cookie: cookie()?,
                v4: v4()?,
                ports: ports()?,
                lifetime: lifetime()?,
                tunnel: tunnel()?,
            },
            5 => Body::Release { id: id()?, cookie: cookie()?, v4: v4()?, ports: ports()? },
            6 => Body::Refuse {
                reason: all.require(options::REASON, reason)?,
                expected: all.read(options::EXPECTED, options::u64)?,
                retry: all.require(options::RETRY, options::u32)?,
            },
            16 => Body::Hello,
            17 => {
                Body::Welcome { nonce: number(options::NONCE)?, session: number(options::SESSION)? }
            }
            18 => Body::Push {
                changes: changes(all)?,
                nonce: number(options::NONCE)?,
                session: number(options::SESSION)?,
                position: number(options::POSITION)?,
                whole: all.read(options::WHOLE, empty)?.is_some(),
            },
            19 => Body::Done {
                session: number(options::SESSION)?,
                position: number(options::POSITION)?,
            },
            other => return Err(Malformed::Kind(other)),
        };
        all.end()?;
        Ok(body)
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        match self {
            Body::Request { id, cookie, v4, sharing, lifetime, tunnel } => {
                w.put_some(options::CLIENT_ID, id.as_ref().map(ClientId::as_str));
                w.put_some(options::COOKIE, cookie.as_ref());
                w.put_some(options::ADDRESS, v4.map(|it| it.octets()));
                if *sharing {
                    w.put(options::SHARING, &[]);
                }
                w.put(options::LIFETIME, &lifetime.to_be_bytes());
                w.put_some(options::TUNNEL, tunnel.map(|it| it.octets()));
            }
            Body::Offer { cookie } => w.put(options::COOKIE, cookie),
            Body::Ack { v4, ports, lifetime, tep } => {
                w.put(options::ADDRESS, &v4.octets());
                w.put_some(options::PORT_SET, ports.map(options::octets_of));
                w.put(options::LIFETIME, &lifetime.to_be_bytes());
                w.put(options::TEP, &tep.octets());
            }
            Body::Renew { id, cookie, v4, ports, lifetime, tunnel } => {
                lent(w, id.as_ref(), cookie.as_ref(), *v4, *ports);
                w.put(options::LIFETIME, &lifetime.to_be_bytes());
                w.put_some(options::TUNNEL, tunnel.map(|it| it.octets()));
            }
            Body::Release { id, cookie, v4, ports } => {
                lent(w, id.as_ref(), cookie.as_ref(), *v4, *ports);
            }
            Body::Refuse { reason, expected, retry } => {
                let code = REASONS.iter().find(|(_, it)| it == reason).map_or(0, |(code, _)| *code);
                w.put(options::REASON, &[code]);
                w.put_some(options::EXPECTED, expected.map(u64::to_be_bytes));
                w.put(options::RETRY, &retry.to_be_bytes());
            }
            Body::Hello => {}
            Body::Welcome { nonce, session } => {
                w.put(options::NONCE, &nonce.to_be_bytes());
                w.put(options::SESSION, &session.to_be_bytes());
            }
            Body::Push { nonce, session, position, whole, changes } => {
                w.put(options::NONCE, &nonce.to_be_bytes());
                w.put(options::SESSION, &session.to_be_bytes());
                w.put(options::POSITION, &position.to_be_bytes());
                if *whole {
                    w.put(options::WHOLE, &[]);
                }
                for change in changes.iter().take(Body::MOST_CHANGES) {
                    match change {
                        Change::Bind(lifetime, binding) => w.bind(*lifetime, binding),
                        Change::Unbind(v4, ports) => w.unbind(*v4, *ports),
                    }
                }
            }
            Body::Done { session, position } => {
                w.put(options::SESSION, &session.to_be_bytes());
                w.put(options::POSITION, &position.to_be_bytes());
            }
        }
    }

    /// Who a client says that it is.
    pub(crate) fn client(&self) -> Option<&ClientId> {
        match self {
            Body::Request { id, .. } | Body::Renew { id, .. } | Body::Release { id, .. } => {
                id.as_ref()
            }
            _ => None,
        }
    }
}

/// The first options of messages from a client that has a lease.
fn lent(
    w: &mut Writer<'_>,
    id: Option<&ClientId>,
    cookie: Option<&[u8; COOKIE]>,
    v4: Ipv4Addr,
    ports: Option<PortSet>,
) {
    w.put_some(options::CLIENT_ID, id.map(ClientId::as_str));
    w.put_some(options::COOKIE, cookie);
    w.put(options::ADDRESS, &v4.octets());
    w.put_some(options::PORT_SET, ports.map(options::octets_of));
}

fn changes(all: &Options<'_>) -> Result<Vec<Change>, Malformed> {
    let mut changes = Vec::new();
    for (code, value) in all.each(&[options::BIND, options::UNBIND]) {
        let change = match code {
            options::BIND => options::bind(value).map(|(it, binding)| Change::Bind(it, binding)),
            _ => options::unbind(value).map(|(v4, it)| Change::Unbind(v4, it)),
        };
        changes.push(change.ok_or(Malformed::Option(code))?);
    }
    if changes.len() > Body::MOST_CHANGES {
        return Err(Malformed::Option(options::BIND));
    }
    Ok(changes)
}

fn empty(value: &[u8]) -> Option<()> {
    value.is_empty().then_some(())
}

fn reason(value: &[u8]) -> Option<Reason> {
    let code = options::u8(value)?;
    REASONS.iter().find(|(other, _)| *other == code).map(|(_, reason)| *reason)
}

fn client_id(value: &[u8]) -> Option<ClientId> {
    ClientId::new(std::str::from_utf8(value).ok()?).ok()
}
