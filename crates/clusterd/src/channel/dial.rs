//! The connection to another gateway, by which it is sent messages.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fordway_cluster::Member;
use fordway_counters::cluster::ChannelCounters;
use futures_util::SinkExt;
use rustls_pki_types::ServerName;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_util::bytes::Bytes;
use tokio_util::codec::FramedWrite;

use super::tls::Tls;
use super::{PATIENCE, frames, tune, why};

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Messages that are written at once.
const BURST: usize = 64;

/// Who is connected to.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) name: ServerName<'static>,
    pub(super) number: Member,
}

/// Sends messages for as long as there are any to come.
pub(super) async fn send(
    peer: Peer,
    tls: Arc<Tls>,
    mut messages: Receiver<Bytes>,
    counters: Arc<ChannelCounters>,
) {
    let mut said = String::new();
    while !messages.is_closed() {
        let why = match connect(&peer, &tls).await {
            Ok(stream) => {
                counters.connected.count();
                said.clear();
                tracing::info!("gateway {}: connected", peer.number.0);
                match forward(stream, &mut messages, &counters).await {
                    Ok(()) => return,
                    Err(error) => error,
                }
            }
            Err(why) => why,
        };
        if said != why {
            tracing::warn!("gateway {} at {}: {why}", peer.number.0, peer.address);
            said = why;
        }
        // What waits is late already, and the protocol sends again what matters.
        while messages.try_recv().is_ok() {
            counters.dropped.count();
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn connect(peer: &Peer, tls: &Tls) -> Result<TlsStream<TcpStream>, String> {
    let connector = tls.connector().map_err(|error| error.to_string())?;
    let connecting = async {
        let stream = TcpStream::connect(peer.address).await?;
        tune(&stream)?;
        connector.connect(peer.name.clone(), stream).await
    };
    let done = timeout(PATIENCE, connecting).await;
    let stream = done.map_err(|_| "it does not answer".to_owned())?.map_err(|error| why(&error))?;
    match tls.whose(stream.get_ref().1.peer_certificates()) {
        Some(member) if member == peer.number => Ok(stream),
        _ => Err("its certificate has the name of another gateway as well".into()),
    }
}

/// Until nobody sends any more; why it can't go on.
async fn forward(
    stream: TlsStream<TcpStream>,
    messages: &mut Receiver<Bytes>,
    counters: &ChannelCounters,
) -> Result<(), String> {
    let (mut reader, writer) = tokio::io::split(stream);
    let mut writer = FramedWrite::new(writer, frames());
    let mut octet = [0];
    let mut burst = Vec::with_capacity(BURST);
    loop {
        tokio::select! {
            // Nothing is ever said here: it is the end.
            end = reader.read(&mut octet) => {
                return Err(why(&end.err().unwrap_or_else(|| ErrorKind::UnexpectedEof.into())));
            }
            received = messages.recv_many(&mut burst, BURST) => {
                if received == 0 {
                    let _ = timeout(PATIENCE, SinkExt::<Bytes>::close(&mut writer)).await;
                    return Ok(());
                }
                for message in burst.drain(..) {
                    writer.feed(message).await.map_err(|error| why(&error))?;
                    counters.sent.count();
                }
                SinkExt::<Bytes>::flush(&mut writer).await.map_err(|error| why(&error))?;
            }
        }
    }
}
