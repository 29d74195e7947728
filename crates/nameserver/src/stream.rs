//! Queries by TCP (RFC 7766): many in one connection, answered in the order in which answers become ready.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use super::https;
use super::query::HEADER;
use super::sockets::Transport;
use super::unread::{Octets, Unread};
use super::worker::{Client, Worker};
use fordway_serve::{Network, listen, spawn_here};

/// Queries of one connection that may be under way; more are not read before answers have been taken.
const PIPELINE: usize = 128;
/// Octets that are written together at most, but for a single answer.
const TOGETHER: usize = 16 << 10;

/// An answer that is to be written.
struct Outgoing {
    /// With its length in front.
    octets: Vec<u8>,
    /// Released when it is written, or the connection ends.
    _held: (Octets, OwnedSemaphorePermit),
}

/// Accepts connections; never ends.
pub(super) async fn accept(listener: Rc<TcpListener>, transport: Transport, worker: Rc<Worker>) {
    let take = |stream, peer| admit(stream, peer, transport, &worker);
    listen::accept(&listener, "DNS64 server", take).await;
}

/// Serves a connection, if its client may have one more.
fn admit(stream: TcpStream, peer: SocketAddr, transport: Transport, worker: &Rc<Worker>) {
    let active = worker.shared.active.load();
    let (settings, limits) = (&active.settings, &active.settings.limits);
    let network = Network::of(peer.ip(), limits.client_len);
    let ticket = settings.allow.contains(peer.ip()).then(|| {
        let tally = &worker.shared.connections;
        tally.enter(network, limits.connections, limits.connections_per_client)
    });
    let Some(Ok(ticket)) = ticket else {
        worker.counters().connections_refused.add(1);
        return;
    };
    worker.counters().connections_accepted.add(1);
    let idle = limits.idle;
    let tls = active.tls.clone();
    let worker = Rc::clone(worker);
    spawn_here(async move {
        let _ticket = ticket;
        // Answers are written whole: Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let client = Client { address: peer.ip().to_canonical(), transport };
        if transport == Transport::Tcp {
            let (read, write) = stream.into_split();
            return serve(Box::new(read), Box::new(write), client, network, idle, worker).await;
        }
        let Some(tls) = tls else { return };
        let handshake = timeout(idle, tls.acceptor(transport).accept(stream)).await;
        let Ok(Ok(stream)) = handshake else {
            worker.counters().handshakes_failed.add(1);
            return;
        };
        if transport == Transport::Https {
            return https::serve(stream, client, network, idle, worker).await;
        }
        let (read, write) = split(stream);
        serve(Box::new(read), Box::new(write), client, network, idle, worker).await;
    });
}

/// Serves a connection until its end.
async fn serve(
    read: Box<dyn AsyncRead + Unpin>,
    write: Box<dyn AsyncWrite + Unpin>,
    client: Client,
    network: Network,
    idle: Duration,
    worker: Rc<Worker>,
) {
    let (answers, outgoing) = mpsc::channel(PIPELINE);
    let mut writing = spawn_here(write_all(write, outgoing, idle));
    let room = Arc::new(Semaphore::new(PIPELINE));
    let unread = Unread::new(Arc::clone(&worker.shared.unread), network);
    let reading = Connection { worker, client, idle, answers, room, unread: Rc::clone(&unread) };
    let worker = Rc::clone(&reading.worker);
    let all = async {
        // Either side's end is the end of both; but answers under way are still written after the last query.
        tokio::select! {
            () = reading.run(BufReader::new(read)) => {}
            () = reading.answers.closed() => {}
        }
        drop(reading);
        let _ = (&mut writing).await;
    };
    let is_over = tokio::select! {
        () = all => false,
        () = unread.over() => true,
    };
    if is_over {
        worker.counters().connections_unread.add(1);
        writing.abort();
    }
}

/// What octets come from.
type Reading = BufReader<Box<dyn AsyncRead + Unpin>>;

/// The reading side of a connection.
struct Connection {
    worker: Rc<Worker>,
    client: Client,
    idle: Duration,
    answers: mpsc::Sender<Outgoing>,
    /// A permit for each query under way.
    room: Arc<Semaphore>,
    unread: Rc<Unread>,
}

impl Connection {
    /// Reads queries until the client ends, is silent for too long, or sends what can't be a message.
    async fn run(&self, mut read: Reading) {
        let mut octets = Vec::new();
        loop {
            let Ok(permit) = Arc::clone(&self.room).acquire_owned().await else { return };
            // A client that does not read answers gets no more of them; the writing side ends it in time.
            self.unread.room().await;
            let Some(len) = self.next_length(&mut read).await else { return };
            if usize::from(len) < HEADER {
                return;
            }
            octets.resize(len.into(), 0);
            match timeout(self.idle, read.read_exact(&mut octets)).await {
                Ok(Ok(_)) => self.serve(&octets, permit).await,
                _ => return,
            }
        }
    }

    /// The length of the next message (RFC 1035 section 4.2.2). None: there is none.
    async fn next_length(&self, read: &mut Reading) -> Option<u16> {
        let mut length = [0; 2];
        loop {
            match timeout(self.idle, read.read_u8()).await {
                Ok(octet) => length[0] = octet.ok()?,
                // RFC 7766 section 3: a connection that waits for answers is not idle.
                Err(_elapsed) if self.room.available_permits() + 1 < PIPELINE => continue,
                Err(_elapsed) => return None,
            }
            length[1] = timeout(self.idle, read.read_u8()).await.ok()?.ok()?;
            return Some(u16::from_be_bytes(length));
        }
    }

    async fn serve(&self, octets: &[u8], permit: OwnedSemaphorePermit) {
        let active = self.worker.shared.active.load_full();
        let now = self.worker.now();
        let mut answer = vec![0; 2];
        let waiting = self.worker.handle(&active, self.client, octets, now, &mut answer);
        drop(active);
        match waiting {
            None => {
                let micros = self.worker.now().instant.saturating_duration_since(now.instant);
                self.worker.counters().took(micros.as_micros() as u64, 1);
                send(&self.answers, &self.unread, answer, permit).await;
            }
            Some(waiting) => {
                let (worker, answers) = (Rc::clone(&self.worker), self.answers.clone());
                let unread = Rc::clone(&self.unread);
                spawn_here(async move {
                    let answer = worker.finish(waiting, |write| {
                        let mut answer = vec![0; 2];
                        write(&mut answer);
                        answer
                    });
                    send(&answers, &unread, answer.await, permit).await;
                });
            }
        }
    }
}

/// Hands an answer to the writing side; one without octets is none.
async fn send(
    answers: &mpsc::Sender<Outgoing>,
    unread: &Rc<Unread>,
    mut octets: Vec<u8>,
    permit: OwnedSemaphorePermit,
) {
    let Ok(len @ 1..) = u16::try_from(octets.len() - 2) else { return };
    octets[..2].copy_from_slice(&len.to_be_bytes());
    // None: the connection ends.
    let Some(held) = unread.add(octets.len()) else { return };
    // The writing side is gone: so is the client.
    let _ = answers.send(Outgoing { octets, _held: (held, permit) }).await;
}

/// Writes answers, those together that are there together; ends when the client does not take them in time.
async fn write_all(
    mut write: impl AsyncWrite + Unpin,
    mut outgoing: mpsc::Receiver<Outgoing>,
    patience: Duration,
) {
    while let Some(mut first) = outgoing.recv().await {
        let mut others = Vec::new();
        while first.octets.len() < TOGETHER
            && let Ok(other) = outgoing.try_recv()
        {
            first.octets.extend_from_slice(&other.octets);
            others.push(other);
        }
        let written = async {
            write.write_all(&first.octets).await?;
            // TLS may hold a part back.
            write.flush().await
        };
        match timeout(patience, written).await {
            Ok(Ok(())) => {}
            _ => return,
        }
    }
    // TLS says that it is the end (RFC 8446 section 6.1).
    let _ = timeout(patience, write.shutdown()).await;
}
