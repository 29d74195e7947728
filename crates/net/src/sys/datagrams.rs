//! Many datagrams with one system call (recvmmsg, sendmmsg), and answers from the address that was asked.

mod control;

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

pub(crate) use control::IPV6_RECVFRAGSIZE;
pub use control::Told;
use control::{CONTROL, Control, Local};

/// Length of a `sockaddr_in6`, the longer one.
const NAME: usize = mem::size_of::<libc::sockaddr_in6>();
/// The other end of a datagram: its address, and the one of ours that it sent to.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    name: Name,
    local: Local,
    /// Type of Service or Traffic Class of what is sent to it; `None`: the socket's own.
    class: Option<u8>,
}

/// A socket address as the system has it.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
struct Name {
    octets: [u8; NAME],
    len: u32,
}

impl Peer {
    /// An address to send to, from the socket's own address.
    pub fn new(address: SocketAddr) -> Self {
        let mut octets = [0; NAME];
        let family = match address {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        };
        octets[..2].copy_from_slice(&(family as libc::sa_family_t).to_ne_bytes());
        octets[2..4].copy_from_slice(&address.port().to_be_bytes());
        let len = match address {
            SocketAddr::V4(v4) => {
                octets[4..8].copy_from_slice(&v4.ip().octets());
                mem::size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                octets[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                octets[8..24].copy_from_slice(&v6.ip().octets());
                octets[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                NAME
            }
        };
        Peer { name: Name { octets, len: len as u32 }, local: Local::Bound, class: None }
    }

    /// This peer, to which datagrams are sent from this address; it need not be the socket's own.
    #[must_use]
    pub fn from_source(self, source: Ipv6Addr) -> Self {
        Peer { local: Local::V6(source, 0), ..self }
    }

    /// This peer, to which datagrams are sent with this Type of Service or Traffic Class.
    #[must_use]
    pub fn with_class(self, class: Option<u8>) -> Self {
        Peer { class, ..self }
    }

    /// The peer's address and port.
    pub fn address(&self) -> SocketAddr {
        let at = |from: usize| -> [u8; 4] { self.name.octets[from..from + 4].try_into().unwrap() };
        let port = u16::from_be_bytes([self.name.octets[2], self.name.octets[3]]);
        match self.ip() {
            IpAddr::V4(v4) => SocketAddrV4::new(v4, port).into(),
            IpAddr::V6(v6) => {
                SocketAddrV6::new(v6, port, u32::from_be_bytes(at(4)), u32::from_ne_bytes(at(24)))
                    .into()
            }
        }
    }

    /// The peer's address alone.
    pub fn ip(&self) -> IpAddr {
        let octets = &self.name.octets;
        let family = libc::sa_family_t::from_ne_bytes([octets[0], octets[1]]);
        if libc::c_int::from(family) == libc::AF_INET {
            Ipv4Addr::new(octets[4], octets[5], octets[6], octets[7]).into()
        } else {
            let mut address = [0; 16];
            address.copy_from_slice(&octets[8..24]);
            Ipv6Addr::from(address).into()
        }
    }

    /// The address of ours that it sent to, where the socket tells.
    pub fn local(&self) -> Option<IpAddr> {
        match self.local {
            Local::Bound => None,
            Local::V4(address) => Some(address.into()),
            Local::V6(address, _) => Some(address.into()),
        }
    }
}

/// Room for datagrams that are received together.
pub struct RecvBatch {
    /// Octets of room for one datagram.
    size: usize,
    octets: Box<[u8]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
    iovecs: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    /// How many the last call has filled.
    filled: usize,
}

/// A datagram that was received.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    /// What it carries.
    pub octets: &'a [u8],
    /// Whence it came, and where an answer goes.
    pub peer: Peer,
    /// It was longer than the room for it.
    pub truncated: bool,
    /// What else the socket was asked to tell.
    pub told: Told,
}

impl RecvBatch {
    /// Room for `count` datagrams of `size` octets.
    pub fn new(count: usize, size: usize) -> Self {
        let mut batch = RecvBatch {
            size,
            octets: vec![0; count * size].into(),
            names: vec![Name { octets: [0; NAME], len: 0 }; count].into(),
            controls: vec![Control([0; CONTROL]); count].into(),
            iovecs: vec![libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; count].into(),
            // SAFETY: all zeroes is a valid mmsghdr: null pointers, and lengths of 0.
            headers: vec![unsafe { mem::zeroed() }; count].into(),
            filled: count,
        };
        let rooms = batch.octets.chunks_exact_mut(size.max(1)).zip(&mut batch.iovecs);
        for (room, iovec) in rooms {
            iovec.iov_base = room.as_mut_ptr().cast();
            iovec.iov_len = size;
        }
        batch
    }

    /// Receives what is there, without waiting, and says how many datagrams that are.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: nothing is there.
    pub fn recv(&mut self, socket: impl AsFd) -> io::Result<usize> {
        // The system has written lengths over these; the pointers are set anew, too, so that they are those of now.
        let used = mem::take(&mut self.filled);
        let rooms = self.names.iter_mut().zip(&mut self.controls).zip(&mut self.iovecs);
        for (header, ((name, control), iovec)) in self.headers.iter_mut().zip(rooms).take(used) {
            let header = &mut header.msg_hdr;
            header.msg_name = ptr::from_mut(&mut name.octets).cast();
            header.msg_namelen = NAME as u32;
            header.msg_iov = iovec;
            header.msg_iovlen = 1;
            header.msg_control = ptr::from_mut(&mut control.0).cast();
            header.msg_controllen = CONTROL as _;
            header.msg_flags = 0;
        }
        let count = self.headers.len() as libc::c_uint;
        // SAFETY: each of the `count` headers points to a name, a control buffer and an iovec of its own, with their
        // lengths, and the iovec to octets of its own: boxed slices that live as long as `self` and are never
        // replaced. Nothing else refers to them during the call, because `self` is borrowed mutably.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        for (header, name) in self.headers.iter().zip(&mut self.names).take(received) {
            name.len = header.msg_hdr.msg_namelen.min(NAME as u32);
        }
        self.filled = received;
        Ok(received)
    }

    /// The datagrams of the last call.
    pub fn iter(&self) -> impl Iterator<Item = Datagram<'_>> {
        let rooms = self.octets.chunks_exact(self.size.max(1)).zip(&self.names).zip(&self.controls);
        self.headers.iter().zip(rooms).take(self.filled).map(
            |(header, ((octets, name), control))| {
                let told = header.msg_hdr.msg_controllen.min(CONTROL);
                let (local, told) = control::read(&control.0[..told]);
                Datagram {
                    octets: &octets[..(header.msg_len as usize).min(self.size)],
                    peer: Peer { name: *name, local, class: None },
                    truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                    told,
                }
            },
        )
    }
}

/// Datagrams that are to be sent together.
#[derive(Default)]
pub struct SendBatch {
    octets: Vec<u8>,
    outgoing: Vec<Outgoing>,
    iovecs: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

struct Outgoing {
    /// Where its octets end; they begin where those of the one before end.
    end: usize,
    name: Name,
    control: Control,
    control_len: usize,
}

impl SendBatch {
    /// How many are waiting.
    pub fn len(&self) -> usize {
        self.outgoing.len()
    }

    /// Whether none is waiting.
    pub fn is_empty(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Adds a datagram whose octets `write` appends; one without octets is left out.
    pub fn push<R>(&mut self, to: &Peer, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let start = self.octets.len();
        let result = write(&mut self.octets);
        if self.octets.len() > start {
            let (control, control_len) = control::write(to.local, to.class, to.ip().is_ipv6());
            let end = self.octets.len();
            self.outgoing.push(Outgoing { end, name: to.name, control, control_len });
        }
        result
    }

    /// Sends them, without waiting, forgets them, and says how many the system did not take.
    pub fn send(&mut self, socket: impl AsFd) -> usize {
        self.send_or(socket, |_| false)
    }

    /// Sends them as [`SendBatch::send`] does; `again` decides whether one that failed is tried once more.
    ///
    /// A socket that hears of ICMP errors tells of one that an earlier datagram has caused when the next one is to be
    /// sent, which then has not been.
    pub fn send_or(
        &mut self,
        socket: impl AsFd,
        mut again: impl FnMut(&io::Error) -> bool,
    ) -> usize {
        let fd = socket.as_fd().as_raw_fd();
        self.iovecs.clear();
        self.headers.clear();
        let mut start = 0;
        for outgoing in &self.outgoing {
            let octets = &mut self.octets[start..outgoing.end];
            start = outgoing.end;
            self.iovecs
                .push(libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() });
        }
        for (outgoing, iovec) in self.outgoing.iter_mut().zip(&mut self.iovecs) {
            // SAFETY: all zeroes is a valid mmsghdr: null pointers, and lengths of 0.
            let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
            header.msg_hdr.msg_name = ptr::from_mut(&mut outgoing.name.octets).cast();
            header.msg_hdr.msg_namelen = outgoing.name.len;
            header.msg_hdr.msg_iov = iovec;
            header.msg_hdr.msg_iovlen = 1;
            if outgoing.control_len > 0 {
                header.msg_hdr.msg_control = ptr::from_mut(&mut outgoing.control.0).cast();
                header.msg_hdr.msg_controllen = outgoing.control_len as _;
            }
            self.headers.push(header);
        }
        let (mut at, mut unsent) = (0, 0);
        let mut tried = usize::MAX;
        while at < self.headers.len() {
            let rest = &mut self.headers[at..];
            // SAFETY: `rest` holds that many headers; each points to a name, an iovec and perhaps a control buffer of
            // its own with their lengths, in vectors that are not touched until they are cleared below; `name.len` is
            // at most the length of `name.octets`, as `Peer::new` and the system have set it.
            let sent = unsafe {
                libc::sendmmsg(
                    fd,
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
                )
            };
            match usize::try_from(sent) {
                Ok(sent) => at += sent.max(1),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    match error.raw_os_error() {
                        Some(libc::EINTR) => {}
                        // No room for any more now.
                        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                            unsent += self.headers.len() - at;
                            break;
                        }
                        _ if tried != at && again(&error) => tried = at,
                        // This one can't be sent: no route, a firewall, its address is gone.
                        _ => {
                            unsent += 1;
                            at += 1;
                        }
                    }
                }
            }
        }
        self.headers.clear();
        self.iovecs.clear();
        self.outgoing.clear();
        self.octets.clear();
        unsent
    }
}

impl std::fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvBatch").field("size", &self.size).field("filled", &self.filled).finish()
    }
}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBatch").field("len", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use fordway_testhost::{PATIENCE, poll};

    use super::*;

    fn socket(address: &str) -> UdpSocket {
        UdpSocket::bind(address).unwrap()
    }

    /// What arrives.
    fn received(batch: &mut RecvBatch, socket: &UdpSocket) -> Vec<(Vec<u8>, Peer, bool)> {
        poll("a datagram", || match batch.recv(socket) {
            Ok(_) => Some(()),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                None
            }
        });
        batch.iter().map(|one| (one.octets.to_vec(), one.peer, one.truncated)).collect()
    }

    #[test]
    fn a_batch_there_and_back() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (here, there) = (socket(address), socket(address));
            let mut out = SendBatch::default();
            let peer = Peer::new(there.local_addr().unwrap());
            assert_eq!(peer.address(), there.local_addr().unwrap());
            for text in ["one", "two", "", "a longer one"] {
                out.push(&peer, |octets| octets.extend(text.as_bytes()));
            }
            assert_eq!(out.len(), 3, "nothing is sent for nothing");
            assert_eq!(out.send(&here), 0);
            assert!(out.is_empty());

            let mut batch = RecvBatch::new(4, 5);
            let mut all = Vec::new();
            while all.len() < 3 {
                all.extend(received(&mut batch, &there));
            }
            let texts: Vec<&[u8]> = all.iter().map(|(octets, ..)| octets.as_slice()).collect();
            assert_eq!(texts, [b"one".as_slice(), b"two", b"a lon"]);
            assert_eq!(all.iter().map(|one| one.2).collect::<Vec<_>>(), [false, false, true]);
            for (_, from, _) in &all {
                assert_eq!(from.address(), here.local_addr().unwrap());
                assert_eq!(from.local(), None, "the socket was not asked to tell");
            }
        }
    }

    #[test]
    fn room_is_used_again() {
        let (here, there) = (socket("[::1]:0"), socket("[::1]:0"));
        let mut batch = RecvBatch::new(2, 64);
        for round in 0..20u8 {
            here.send_to(&[round], there.local_addr().unwrap()).unwrap();
            let all = received(&mut batch, &there);
            assert_eq!(all.len(), 1);
            assert_eq!(all[0].0, [round]);
            assert_eq!(all[0].1.address(), here.local_addr().unwrap());
        }
        assert_eq!(batch.recv(&there).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(batch.iter().count(), 0, "nothing is left of the call before");
    }

    #[test]
    fn an_answer_comes_from_the_address_asked() {
        let wildcard = socket("0.0.0.0:0");
        let on: libc::c_int = 1;
        // SAFETY: the option takes an int, whose address and length are given.
        let set = unsafe {
            libc::setsockopt(
                wildcard.as_raw_fd(),
                libc::IPPROTO_IP,
                libc::IP_PKTINFO,
                ptr::from_ref(&on).cast(),
                mem::size_of_val(&on) as _,
            )
        };
        assert_eq!(set, 0);
        let asked = SocketAddr::new([127, 0, 0, 53].into(), wildcard.local_addr().unwrap().port());
        let client = socket("127.0.0.1:0");
        client.connect(asked).unwrap();
        client.send(b"?").unwrap();
        let mut batch = RecvBatch::new(2, 64);
        let all = received(&mut batch, &wildcard);
        assert_eq!(all[0].1.local(), Some(asked.ip()));
        let mut out = SendBatch::default();
        out.push(&all[0].1, |octets| octets.extend(b"!"));
        assert_eq!(out.send(&wildcard), 0);
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut octets = [0; 8];
        assert_eq!(client.recv(&mut octets).unwrap(), 1, "a connected socket hears only its peer");
    }

    #[test]
    fn one_that_cannot_be_sent_does_not_stop_the_others() {
        let (here, there) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
        let mut out = SendBatch::default();
        let to = Peer::new(there.local_addr().unwrap());
        out.push(&Peer::new("255.255.255.255:1".parse().unwrap()), |octets| octets.push(1));
        out.push(&to, |octets| octets.extend(vec![2; 70_000]));
        out.push(&to, |octets| octets.push(3));
        assert_eq!(out.send(&here), 2);
        let mut batch = RecvBatch::new(4, 64);
        assert_eq!(received(&mut batch, &there)[0].0, [3]);
    }
}
