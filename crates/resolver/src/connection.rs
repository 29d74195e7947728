//! Connections to a server, by TCP, TLS or HTTPS: one by runtime, with many questions under way.
//!
//! A connection is a task that makes it, serves the questions that come by a channel, and ends when nothing has come
//! for a while. It outlives the lookup that opened it, so that a slow handshake is not repeated with every question.

use std::io;
use std::sync::Arc;

use hickory_net::h2::HttpsClientStream;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tracing::debug;

use super::error::AttemptError;
use super::peer::Peer;
use super::query::Query;
use super::request::{IDLE, Request};
use super::settings::Protocol;
use super::tls::Tls;
use super::{https, stream};

/// How many questions wait for their turn to be sent.
const QUEUE: usize = 256;
/// A handle of a connection's task.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    requests: mpsc::Sender<Request>,
}

impl Connection {
    /// Begins to make one.
    pub(super) fn open(peer: Arc<Peer>) -> Self {
        let (requests, queue) = mpsc::channel(QUEUE);
        peer.counters.connections.count();
        tokio::spawn(run(peer, queue));
        Self { requests }
    }

    /// Whether it takes questions.
    pub(super) fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }

    /// Asks, and waits for the response however long it takes.
    pub(super) async fn ask(&self, query: &Query) -> Result<Vec<u8>, AttemptError> {
        let (answer, response) = oneshot::channel();
        let request = Request { query: query.as_octets().to_vec(), answer };
        self.requests.send(request).await.map_err(|_| AttemptError::Closed)?;
        response.await.unwrap_or(Err(AttemptError::Closed))
    }
}

/// What a connection is made of.
enum Link {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Https(HttpsClientStream),
}

async fn run(peer: Arc<Peer>, mut queue: mpsc::Receiver<Request>) {
    let made = timeout(peer.timeout, connect(&peer)).await;
    let served = match made.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(Link::Tcp(tcp)) => stream::serve(tcp, &mut queue, peer.timeout, IDLE).await,
        Ok(Link::Tls(tls)) => stream::serve(*tls, &mut queue, peer.timeout, IDLE).await,
        Ok(Link::Https(client)) => https::serve(client, &mut queue, peer.timeout).await,
        Err(error) => {
            debug!(server = %peer.server, %error, "no connection to upstream server");
            return refuse(&mut queue, error.into());
        }
    };
    if let Err(error) = served {
        debug!(server = %peer.server, %error, "connection to upstream server broke");
    }
    // A lookup that comes meanwhile opens a new one.
    refuse(&mut queue, AttemptError::Closed);
}

async fn connect(peer: &Peer) -> io::Result<Link> {
    let tls = || peer.tls.as_ref().ok_or(io::ErrorKind::Unsupported);
    if let Protocol::Https { path, .. } = &peer.server.protocol {
        let client = https::connect(peer.server.address, tls()?, path).await?;
        return Ok(Link::Https(client));
    }
    let tcp = TcpStream::connect(peer.server.address).await?;
    tcp.set_nodelay(true)?;
    if let Protocol::Tls { .. } = &peer.server.protocol {
        let Tls { config, name } = tls()?;
        let connector = TlsConnector::from(Arc::clone(config));
        let tls = connector.connect(name.clone(), tcp).await?;
        return Ok(Link::Tls(Box::new(tls)));
    }
    Ok(Link::Tcp(tcp))
}

fn refuse(queue: &mut mpsc::Receiver<Request>, trouble: AttemptError) {
    queue.close();
    while let Ok(request) = queue.try_recv() {
        let _ = request.answer.send(Err(trouble));
    }
}
