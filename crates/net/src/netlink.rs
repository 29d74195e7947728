//! Asking the kernel over netlink, above all over a routing netlink socket.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkDeserializable,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlaBuffer, NlasIterator,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::{Error, Result};

/// A connection to the kernel's routing tables.
///
/// Belongs to the network namespace of the thread that opened it, wherever it is used later. Interfaces are given by
/// name and looked up with each request.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Netlink {
    /// Opens a connection in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`] if the kernel has no routing netlink or the process may not use it.
    pub fn open() -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let socket = connect(NETLINK_ROUTE)?;
            // Lets dumps be filtered by the kernel.
            socket.set_netlink_get_strict_chk(true)?;
            Ok(socket)
        };
        let failed = |source| Error::netlink("open a routing netlink socket", source);
        Ok(Self { socket: open().map_err(failed)?, sequence: 0 })
    }

    /// Sends a request and returns the answers up to the acknowledgement.
    ///
    /// `operation` completes "cannot ..." in an error.
    pub(crate) fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        operation: impl Fn() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        self.exchange(message, flags | NLM_F_ACK, &operation).map(|(answers, _)| answers)
    }

    /// Lists all objects of a kind; again if they changed meanwhile.
    pub(crate) fn dump(
        &mut self,
        message: &RouteNetlinkMessage,
        operation: &str,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        const ATTEMPTS: usize = 5;
        for _ in 0..ATTEMPTS {
            let (answers, interrupted) =
                self.exchange(message.clone(), NLM_F_DUMP, &|| operation.to_owned())?;
            if !interrupted {
                return Ok(answers);
            }
        }
        Err(Error::Answer {
            operation: operation.to_owned(),
            reason: format!("the list kept changing while it was read ({ATTEMPTS} attempts)"),
        })
    }

    /// Lists all objects of a kind of both IP versions; a kernel without one of them has none.
    pub(crate) fn dump_both(
        &mut self,
        message: impl Fn(AddressFamily) -> RouteNetlinkMessage,
        operation: &str,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        let mut all = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            match self.dump(&message(family), operation) {
                Err(error) if error.is_unsupported() => {}
                answers => all.extend(answers?),
            }
        }
        Ok(all)
    }

    /// Looks at all objects of a kind of both IP versions, one after the other: of those that change meanwhile perhaps at some
    /// twice, or at none. One that can't be read is an error. A kernel without one of the IP versions has none.
    pub(crate) fn look_at_both(
        &mut self,
        message: impl Fn(AddressFamily) -> RouteNetlinkMessage,
        operation: &str,
        mut look: impl FnMut(RouteNetlinkMessage),
    ) -> Result<()> {
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            self.sequence = self.sequence.wrapping_add(1);
            let operation = || operation.to_owned();
            let (sequence, look) = (self.sequence, &mut look);
            let asked = stream(
                &self.socket,
                message(family),
                NLM_F_DUMP,
                sequence,
                false,
                &operation,
                look,
            );
            match asked {
                Err(error) if error.is_unsupported() => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        operation: &dyn Fn() -> String,
    ) -> Result<(Vec<RouteNetlinkMessage>, bool)> {
        self.sequence = self.sequence.wrapping_add(1);
        exchange(&self.socket, message, flags, self.sequence, operation)
    }
}

/// Opens a socket of a netlink family.
pub(crate) fn connect(family: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(family)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.set_ext_ack(true)?;
    // Error answers without a copy of the request; the explanation follows the header at once.
    socket.set_cap_ack(true)?;
    Ok(socket)
}

/// A request as the kernel reads it.
pub(crate) fn serialize<T>(message: T, flags: u16, sequence: u32) -> Vec<u8>
where
    T: NetlinkSerializable + Debug + Into<NetlinkPayload<T>>,
{
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | flags;
    request.header.sequence_number = sequence;
    request.finalize();
    let mut octets = vec![0; request.buffer_len().next_multiple_of(4)];
    request.serialize(&mut octets);
    octets
}

/// Sends a request and collects the answers up to the one that ends them; and whether the objects changed while they
/// were listed.
pub(crate) fn exchange<T>(
    socket: &Socket,
    message: T,
    flags: u16,
    sequence: u32,
    operation: &dyn Fn() -> String,
) -> Result<(Vec<T>, bool)>
where
    T: NetlinkSerializable + NetlinkDeserializable + Debug + Into<NetlinkPayload<T>>,
{
    let mut answers = Vec::new();
    let keep = &mut |answer| answers.push(answer);
    let is_list = flags & NLM_F_DUMP == NLM_F_DUMP;
    let interrupted = stream(socket, message, flags, sequence, is_list, operation, keep)?;
    Ok((answers, interrupted))
}

/// As [`exchange`], but each answer is given away as it comes. `skips`: those that can't be read are passed over.
fn stream<T>(
    socket: &Socket,
    message: T,
    flags: u16,
    sequence: u32,
    skips: bool,
    operation: &dyn Fn() -> String,
    look: &mut dyn FnMut(T),
) -> Result<bool>
where
    T: NetlinkSerializable + NetlinkDeserializable + Debug + Into<NetlinkPayload<T>>,
{
    let failed =
        |source: io::Error, detail| Error::Netlink { operation: operation(), source, detail };
    let unexpected = |reason: String| Error::Answer { operation: operation(), reason };
    let request = serialize(message, flags, sequence);
    socket.send(&request, 0).map_err(|error| failed(error, None))?;

    let mut interrupted = false;
    let mut datagram = Vec::new();
    loop {
        receive(socket, &mut datagram).map_err(|error| failed(error, None))?;
        let mut rest = datagram.as_slice();
        while let Some(answer) = next(&mut rest, skips) {
            let answer = answer.map_err(unexpected)?;
            // An answer to a request that was given up on earlier.
            if answer.header.sequence_number != sequence {
                continue;
            }
            interrupted |= answer.header.flags & NLM_F_DUMP_INTR != 0;
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => look(message),
                NetlinkPayload::Done(done) if done.code == 0 => return Ok(interrupted),
                NetlinkPayload::Done(done) => {
                    let error = io::Error::from_raw_os_error(done.code.saturating_abs());
                    return Err(failed(error, explanation(&done.extended_ack)));
                }
                NetlinkPayload::Error(error) if error.raw_code() == 0 => {
                    return Ok(interrupted);
                }
                NetlinkPayload::Error(error) => {
                    return Err(failed(error.to_io(), explanation_of(&error)));
                }
                NetlinkPayload::Noop => {}
                _ => return Err(unexpected("messages were lost".to_owned())),
            }
        }
    }
}

/// Octets of the buffer for answers. The kernel puts at most 32 KiB of a list into a datagram, however large the buffer is.
const DATAGRAM: usize = 1 << 16;

/// Takes a datagram in one call, without asking for its length first. One that the buffer does not hold is an error.
pub(crate) fn receive(socket: &Socket, datagram: &mut Vec<u8>) -> io::Result<()> {
    datagram.clear();
    datagram.reserve(DATAGRAM);
    let length = socket.recv(datagram, libc::MSG_TRUNC)?;
    if length > datagram.len() {
        return Err(io::Error::other(format!("an answer of {length} octets")));
    }
    Ok(())
}

/// Takes the next message off the octets of a datagram. In a list (`is_list`), objects of a kind that is not known
/// here yet are skipped.
pub(crate) fn next<T: NetlinkDeserializable>(
    rest: &mut &[u8],
    is_list: bool,
) -> Option<std::result::Result<NetlinkMessage<T>, String>> {
    while !rest.is_empty() {
        match NetlinkMessage::deserialize(rest) {
            Ok(answer) => {
                *rest = behind(rest);
                return Some(Ok(answer));
            }
            Err(_) if is_list && is_object(rest) => *rest = behind(rest),
            Err(error) => return Some(Err(error.to_string())),
        }
    }
    None
}

/// Whether a message is whole, and none of netlink's own (`NLMSG_MIN_TYPE`).
fn is_object(octets: &[u8]) -> bool {
    const FIRST: u16 = 16;
    NetlinkBuffer::new_checked(octets).is_ok_and(|message| message.message_type() >= FIRST)
}

/// What follows a whole message.
fn behind(octets: &[u8]) -> &[u8] {
    let length = NetlinkBuffer::new(octets).length() as usize;
    octets.get(length.next_multiple_of(4).max(NETLINK_HEADER)..).unwrap_or_default()
}

/// Octets of a netlink message's header.
const NETLINK_HEADER: usize = 16;

/// Flag of an answer: the objects changed while they were listed.
const NLM_F_DUMP_INTR: u16 = 0x10;

/// `NLMSGERR_ATTR_MSG`: the kernel's explanation, a C string.
const EXPLANATION: u16 = 1;

/// The kernel's explanation of an error.
pub(crate) fn explanation_of(error: &ErrorMessage) -> Option<String> {
    explanation(error.header.get(NETLINK_HEADER..).unwrap_or_default())
}

/// The kernel's words among the attributes behind an error.
fn explanation(attributes: &[u8]) -> Option<String> {
    NlasIterator::new(attributes)
        .filter_map(std::result::Result::ok)
        .find(|attribute: &NlaBuffer<&[u8]>| attribute.kind() == EXPLANATION)
        .map(|attribute| {
            let text = attribute.value().split(|octet| *octet == 0).next();
            String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
        })
        .filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link (`RTM_NEWLINK`) whose attributes are cut: it can't be read.
    fn unreadable() -> Vec<u8> {
        let mut message = vec![0; NETLINK_HEADER + 20];
        message[0] = 36;
        message[4] = 16;
        // An attribute that says it is longer than what is there.
        message[32] = 200;
        message
    }

    #[test]
    fn an_object_that_can_not_be_read_is_passed_over_and_what_is_cut_is_not() {
        let octets = [&unreadable()[..], b"next"].concat();
        assert!(NetlinkMessage::<RouteNetlinkMessage>::deserialize(&octets).is_err());
        assert!(is_object(&octets));
        assert_eq!(behind(&octets), b"next");
        assert!(!is_object(&octets[..20]) && !is_object(&octets[..8]) && !is_object(&[]));
        // An end of a list is none.
        let mut done = unreadable();
        done[4] = 3;
        assert!(!is_object(&done));
    }

    #[test]
    fn a_list_goes_on_behind_an_object_that_can_not_be_read() {
        let mut done = vec![0; NETLINK_HEADER + 4];
        done[0] = 20;
        done[4] = 3;
        let octets = [unreadable(), done].concat();
        let mut rest = octets.as_slice();
        let answer = next::<RouteNetlinkMessage>(&mut rest, true).unwrap().unwrap();
        assert!(matches!(answer.payload, NetlinkPayload::Done(_)), "{answer:?}");
        assert!(rest.is_empty() && next::<RouteNetlinkMessage>(&mut rest, true).is_none());
        // What was asked for alone is not there if it can't be read.
        assert!(next::<RouteNetlinkMessage>(&mut octets.as_slice(), false).unwrap().is_err());
    }
}
