//! One query to one resolver: over UDP, and over TCP if the answer does not fit.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use fordway_dns64::discovery::{Ask, Failure};
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};

/// Longest message over UDP that is read, in octets. Without EDNS no server sends more than 512.
const UDP_MAX: usize = 4096;

/// Sends the query, and waits for the answer until its timeout.
pub(super) async fn ask(ask: &Ask) -> Result<Box<Message>, Failure> {
    match tokio::time::timeout(ask.timeout, exchange(ask)).await {
        Ok(answer) => answer.map(Box::new),
        Err(_) => Err(Failure::Timeout),
    }
}

async fn exchange(ask: &Ask) -> Result<Message, Failure> {
    let query = query(ask)?;
    let octets = query.to_vec().map_err(|_| Failure::Malformed)?;
    let answer = by_udp(ask, &query, &octets).await.map_err(unreachable)?;
    if answer.metadata.truncation {
        return by_tcp(ask, &query, &octets).await.map_err(unreachable)?.ok_or(Failure::Malformed);
    }
    Ok(answer)
}

fn query(ask: &Ask) -> Result<Message, Failure> {
    let id = getrandom::u32().map_err(|error| Failure::Unreachable(error.to_string()))?;
    let mut message = Message::new(id as u16, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    // RFC 7050 section 3: with CD, a DNS64 server would not synthesise.
    message.metadata.checking_disabled = false;
    message.metadata.authentic_data = ask.authenticated;
    message.add_query(Query::query(ask.name.clone(), ask.record_type));
    Ok(message)
}

async fn by_udp(ask: &Ask, query: &Message, octets: &[u8]) -> io::Result<Message> {
    let socket = UdpSocket::from_std(open(ask, Type::DGRAM, Protocol::UDP)?.into())?;
    // Connected, only the resolver's own answers come in; the port is the kernel's random choice.
    socket.connect(ask.server).await?;
    socket.send(octets).await?;
    let mut buffer = vec![0; UDP_MAX];
    loop {
        let len = socket.recv(&mut buffer).await?;
        // A forged datagram does not end the wait for the answer.
        if let Some(answer) = buffer.get(..len).and_then(|octets| answer(octets, query)) {
            return Ok(answer);
        }
    }
}

async fn by_tcp(ask: &Ask, query: &Message, octets: &[u8]) -> io::Result<Option<Message>> {
    let socket = TcpSocket::from_std_stream(open(ask, Type::STREAM, Protocol::TCP)?.into());
    let mut stream = socket.connect(ask.server).await?;
    let mut framed = Vec::with_capacity(octets.len() + 2);
    framed.extend((octets.len() as u16).to_be_bytes());
    framed.extend(octets);
    stream.write_all(&framed).await?;
    let len = stream.read_u16().await?;
    let mut buffer = vec![0; len.into()];
    stream.read_exact(&mut buffer).await?;
    Ok(answer(&buffer, query))
}

/// A socket of the resolver's IP version, on the interface that the resolver was learned on.
fn open(ask: &Ask, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let (domain, any) = match ask.server {
        SocketAddr::V4(_) => (Domain::IPV4, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
        SocketAddr::V6(_) => (Domain::IPV6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))),
    };
    let socket = Socket::new(domain, kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    if let Some(device) = &ask.device {
        match socket.bind_device(Some(device.name.as_bytes())) {
            Ok(()) => {}
            // Before Linux 5.7 this needs CAP_NET_RAW. Without it the host's routes decide, which lead to the network's
            // resolver by that interface.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    socket.bind(&any.into())?;
    Ok(socket)
}

/// A message, if it answers the question.
fn answer(octets: &[u8], query: &Message) -> Option<Message> {
    let message = Message::from_vec(octets).ok()?;
    let same = |one: &Query, other: &Query| {
        one.name().eq_ignore_root(other.name())
            && one.query_type() == other.query_type()
            && one.query_class() == other.query_class()
    };
    let asked = query.queries.first()?;
    let is_answer = message.metadata.id == query.metadata.id
        && message.metadata.message_type == MessageType::Response
        && message.metadata.op_code == OpCode::Query
        && matches!(message.queries.as_slice(), [one] if same(one, asked));
    is_answer.then_some(message)
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreachable(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Failure::Unreachable("connection refused".to_owned()),
        io::ErrorKind::UnexpectedEof => Failure::Malformed,
        // The text without the error's number is enough.
        _ => {
            let text = error.to_string();
            let words = text.split(" (os error").next().unwrap_or_default();
            Failure::Unreachable(words.to_lowercase())
        }
    }
}

#[cfg(test)]
mod tests;
