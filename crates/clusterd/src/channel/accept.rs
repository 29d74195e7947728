//! Connections of other gateways, by which their messages come.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use fordway_cluster::{Input, decode};
use fordway_counters::cluster::ChannelCounters;
use fordway_serve::listen;
use futures_util::StreamExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;
use tokio_util::codec::FramedRead;

use super::tls::Tls;
use super::{ChannelError, ChannelSettings, PATIENCE, frames, tune, why};

/// Handshakes at a time; other connections are refused, but those from a gateway's address.
const HANDSHAKES: usize = 32;
/// Connections that wait for the kernel's listener.
const BACKLOG: i32 = 128;

/// Takes connections for as long as somebody listens to `inputs`.
pub(super) fn open(
    settings: &ChannelSettings,
    tls: Arc<Tls>,
    inputs: Sender<Input>,
    counters: Arc<ChannelCounters>,
) -> Result<(), ChannelError> {
    let listener = listen::listener(settings.listen, BACKLOG, |_| Ok(()))
        .and_then(TcpListener::from_std)
        .map_err(|error| ChannelError::Listen(settings.listen, error))?;
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    let peers: BTreeSet<IpAddr> = settings.peers.iter().map(|peer| peer.address.ip()).collect();
    tokio::spawn(async move {
        let taken = listen::accept(&listener, "cluster", |stream, from| {
            // Strangers never take a gateway's place.
            let is_peer = peers.contains(&from.ip().to_canonical());
            let permit = match Arc::clone(&handshakes).try_acquire_owned() {
                Err(_) if !is_peer => return counters.refused.count(),
                permit => permit.ok(),
            };
            let (tls, inputs, counters) = (Arc::clone(&tls), inputs.clone(), Arc::clone(&counters));
            tokio::spawn(async move {
                let greeted = timeout(PATIENCE, greet(stream, &tls)).await;
                drop(permit);
                match greeted.unwrap_or_else(|_| Err("no handshake in time".into())) {
                    Ok(known) => receive(known, &inputs, &counters).await,
                    Err(why) => {
                        counters.refused.count();
                        if is_peer {
                            tracing::warn!("a connection of {from} was refused: {why}");
                        } else {
                            tracing::debug!("a connection of {from} was refused: {why}");
                        }
                    }
                }
            });
        });
        tokio::select! {
            () = inputs.closed() => {}
            () = taken => {}
        }
    });
    Ok(())
}

/// A connection, and whose it is.
type Known = (fordway_cluster::Member, tokio_rustls::server::TlsStream<TcpStream>);

async fn greet(stream: TcpStream, tls: &Tls) -> Result<Known, String> {
    tune(&stream).map_err(|error| error.to_string())?;
    let acceptor = tls.acceptor().map_err(|error| error.to_string())?;
    let stream = acceptor.accept(stream).await.map_err(|error| error.to_string())?;
    let member = tls.whose(stream.get_ref().1.peer_certificates());
    Ok((member.ok_or("its certificate is none of one gateway's")?, stream))
}

async fn receive((from, stream): Known, inputs: &Sender<Input>, counters: &ChannelCounters) {
    let mut messages = FramedRead::new(stream, frames());
    loop {
        let message = tokio::select! {
            () = inputs.closed() => return,
            message = messages.next() => message,
        };
        match message {
            Some(Ok(octets)) => match decode(&octets) {
                Ok(message) => {
                    counters.received.count();
                    let _ = inputs.send(Input::Received { from, message }).await;
                }
                Err(error) => {
                    counters.malformed.count();
                    tracing::warn!("gateway {}: a message is {error}", from.0);
                    return;
                }
            },
            Some(Err(error)) => {
                tracing::info!("gateway {}: its connection has ended: {}", from.0, why(&error));
                return;
            }
            None => return,
        }
    }
}
