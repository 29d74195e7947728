//! Control messages: what a socket tells about a datagram, and what it is told.

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};

/// Length of the header of a control message, and what its length is a multiple of.
const HEADER: usize = mem::size_of::<libc::cmsghdr>();
const ALIGN: usize = mem::size_of::<usize>();

/// Room for those that are asked for together: an `in6_pktinfo`, a `sockaddr_in6`, and two numbers.
pub(super) const CONTROL: usize = space(mem::size_of::<libc::in6_pktinfo>())
    + space(mem::size_of::<libc::sockaddr_in6>())
    + 2 * space(mem::size_of::<libc::c_int>());

/// `IPV6_RECVFRAGSIZE` (Linux 4.12), not among libc's constants.
pub(crate) const IPV6_RECVFRAGSIZE: libc::c_int = 77;

const fn space(data: usize) -> usize {
    HEADER + data.next_multiple_of(ALIGN)
}

#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control(pub(super) [u8; CONTROL]);

/// The address of ours, where a socket is asked to tell it (IP_PKTINFO, IPV6_RECVPKTINFO).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Local {
    /// The socket's own.
    Bound,
    /// With the number of the device where it must be told: a link-local address.
    V4(Ipv4Addr),
    V6(Ipv6Addr, u32),
}

/// What a socket tells about a datagram, as far as it is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    /// Where it was sent to (IPV6_RECVORIGDSTADDR).
    pub original: Option<SocketAddrV6>,
    /// Its Traffic Class or Type of Service (IPV6_RECVTCLASS, IP_RECVTOS).
    pub class: Option<u8>,
    /// It came in fragments (IPV6_RECVFRAGSIZE).
    pub fragmented: bool,
}

/// Reads the control messages of a datagram.
pub(super) fn read(mut control: &[u8]) -> (Local, Told) {
    let (mut local, mut told) = (Local::Bound, Told::default());
    while let Some((header, _)) = control.split_at_checked(HEADER) {
        let (Some(len), Some(level), Some(kind)) =
            (octets(header, 0), octets(header, ALIGN), octets(header, ALIGN + 4))
        else {
            break;
        };
        let (len, level, kind) =
            (usize::from_ne_bytes(len), i32::from_ne_bytes(level), i32::from_ne_bytes(kind));
        let Some(data) = control.get(HEADER..len) else { break };
        match (level, kind) {
            // in_pktinfo: device, the address to answer from, the address in the packet.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                if let Some(address) = octets::<4>(data, 4) {
                    local = Local::V4(Ipv4Addr::from(address));
                }
            }
            // in6_pktinfo: address, device.
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                if let (Some(address), Some(device)) = (octets::<16>(data, 0), octets(data, 16)) {
                    let address = Ipv6Addr::from(address);
                    let needed = address.is_unicast_link_local();
                    let device = if needed { u32::from_ne_bytes(device) } else { 0 };
                    local = Local::V6(address, device);
                }
            }
            // sockaddr_in6: family, port, flow label, address.
            (libc::IPPROTO_IPV6, libc::IPV6_ORIGDSTADDR) => {
                if let (Some(port), Some(address)) = (octets(data, 2), octets::<16>(data, 8)) {
                    let port = u16::from_be_bytes(port);
                    told.original = Some(SocketAddrV6::new(address.into(), port, 0, 0));
                }
            }
            // An int, or one octet.
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) | (libc::IPPROTO_IP, libc::IP_TOS) => {
                told.class = match octets(data, 0) {
                    Some(class) => u8::try_from(i32::from_ne_bytes(class)).ok(),
                    None => data.first().copied(),
                };
            }
            (libc::IPPROTO_IPV6, IPV6_RECVFRAGSIZE) => told.fragmented = true,
            _ => {}
        }
        let Some(rest) = control.get(len.next_multiple_of(ALIGN)..) else { break };
        control = rest;
    }
    (local, told)
}

/// The octets from `at` on, if there are so many.
fn octets<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..)?.first_chunk().copied()
}

/// The control messages that make `local` the source of a datagram and set its class, and their length; 0 for none.
pub(super) fn write(local: Local, class: Option<u8>, v6: bool) -> (Control, usize) {
    let mut control = Control([0; CONTROL]);
    let mut end = 0;
    let mut put = |level: libc::c_int, kind: libc::c_int, data: &[u8]| {
        let len = HEADER + data.len();
        let octets = &mut control.0[end..];
        octets[..ALIGN].copy_from_slice(&len.to_ne_bytes());
        octets[ALIGN..ALIGN + 4].copy_from_slice(&level.to_ne_bytes());
        octets[ALIGN + 4..ALIGN + 8].copy_from_slice(&kind.to_ne_bytes());
        octets[HEADER..len].copy_from_slice(data);
        end += len.next_multiple_of(ALIGN);
    };
    match local {
        Local::Bound => {}
        Local::V4(address) => {
            // ipi_spec_dst is the source; no device.
            let mut info = [0; mem::size_of::<libc::in_pktinfo>()];
            info[4..8].copy_from_slice(&address.octets());
            put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
        Local::V6(address, device) => {
            let mut info = [0; mem::size_of::<libc::in6_pktinfo>()];
            info[..16].copy_from_slice(&address.octets());
            info[16..20].copy_from_slice(&device.to_ne_bytes());
            put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        }
    }
    if let Some(class) = class {
        let (level, kind) = match v6 {
            true => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            false => (libc::IPPROTO_IP, libc::IP_TOS),
        };
        put(level, kind, &libc::c_int::from(class).to_ne_bytes());
    }
    (control, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_read_as_they_are_written() {
        for local in [
            Local::Bound,
            Local::V4(Ipv4Addr::new(192, 0, 2, 1)),
            Local::V6("2001:db8::1".parse().unwrap(), 0),
            Local::V6("fe80::1".parse().unwrap(), 7),
        ] {
            for class in [None, Some(0), Some(0xb8)] {
                for v6 in [false, true] {
                    let (control, len) = write(local, class, v6);
                    let told = Told { class, ..Told::default() };
                    assert_eq!(read(&control.0[..len]), (local, told));
                }
            }
        }
        let nothing = (Local::Bound, Told::default());
        assert_eq!(read(&[0; 64]), nothing, "a length of 0 ends the search");
        assert_eq!(read(&[0xff; 64]), nothing);
        assert_eq!(read(&[]), nothing);
    }
}
