//! Messages between gateways.
//!
//! Each gateway connects to each other one and sends by that connection; it receives by those that the others make. TLS 1.3, and
//! both sides show certificates of the cluster's authority, for the name that the configuration gives the gateway. A message is its
//! length in octets (u32, network byte order), then what `fordway_cluster::encode` makes of it.
//!
//! Messages may be lost: those to a gateway that is not connected, and those that find its queue full, are dropped and counted.

mod accept;
mod dial;
mod tls;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fordway_cluster::{Input, Member, Message, encode};
use fordway_counters::cluster::{ChannelCounters, ChannelStats};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, Sender};
use tokio_util::bytes::Bytes;
use tokio_util::codec::LengthDelimitedCodec;

use tls::Tls;

/// Octets of a message at most; the longest that a gateway sends has 256 records.
const LONGEST: usize = 1 << 20;
/// Messages to a gateway that wait.
const QUEUE: usize = 4096;
/// How long a connection and its handshake may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long octets may be unacknowledged, until the connection is made anew.
const UNACKNOWLEDGED: Duration = Duration::from_secs(1);
/// After what time an idle connection is probed, and how often.
const IDLE: Duration = Duration::from_secs(5);

/// Another gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Its number.
    pub member: Member,
    /// A DNS name of its certificate, which no other gateway's has.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
}

/// How gateways talk to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelSettings {
    /// The DNS name of this gateway's own certificate.
    pub name: String,
    /// Where this one listens.
    pub listen: SocketAddr,
    /// The others.
    pub peers: Vec<PeerSettings>,
    /// Certificates of the cluster's authority (PEM). Read again for each connection, as the next two are.
    pub ca: PathBuf,
    /// This gateway's certificate (PEM), followed by those between it and the authority.
    pub certificate: PathBuf,
    /// Its key (PEM).
    pub key: PathBuf,
}

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// A file is no certificate or no key.
    #[error("{0}: {1}")]
    File(PathBuf, String),
    /// A name of a peer is no DNS name.
    #[error("the gateway's name {0} is no DNS name")]
    Name(String),
    /// Nobody can listen there.
    #[error("listening to {0} for other gateways: {1}")]
    Listen(SocketAddr, std::io::Error),
}

/// The channel to all other gateways.
pub(crate) struct Channel {
    queues: BTreeMap<Member, Sender<Bytes>>,
    counters: Arc<ChannelCounters>,
}

impl Channel {
    /// Listens and connects, and gives `inputs` what is received, for as long as somebody listens. Within a tokio runtime.
    pub(crate) fn open(
        settings: &ChannelSettings,
        inputs: Sender<Input>,
    ) -> Result<Self, ChannelError> {
        let tls = Arc::new(Tls::new(settings)?);
        let counters = Arc::<ChannelCounters>::default();
        let queues = settings.peers.iter().map(|peer| {
            let (queue, messages) = mpsc::channel(QUEUE);
            let name = tls::name(&peer.name)?;
            let to = dial::Peer { address: peer.address, name, number: peer.member };
            tokio::spawn(dial::send(to, Arc::clone(&tls), messages, Arc::clone(&counters)));
            Ok((peer.member, queue))
        });
        let queues = queues.collect::<Result<_, ChannelError>>()?;
        accept::open(settings, tls, inputs, Arc::clone(&counters))?;
        Ok(Self { queues, counters })
    }

    /// Sends a message, or drops it.
    pub(crate) fn send(&self, to: Member, message: &Message) {
        let queue = self.queues.get(&to);
        if queue.is_none_or(|queue| queue.try_send(encode(message).into()).is_err()) {
            self.counters.dropped.count();
        }
    }

    pub(crate) fn stats(&self) -> ChannelStats {
        let mut stats = ChannelStats::default();
        self.counters.add_to(&mut stats);
        stats
    }
}

fn frames() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(LONGEST).new_codec()
}

/// Why a connection has ended. A killed process closes it without TLS's close_notify, which tells operators no more than that.
fn why(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "it has closed the connection".into(),
        _ => error.to_string(),
    }
}

/// Messages leave at once, and who vanishes is noticed.
fn tune(stream: &TcpStream) -> std::io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(IDLE).with_interval(IDLE))
}
