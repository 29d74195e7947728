//! Answering requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tracing::{debug, error, info, warn};

use super::{MAX_REQUEST, Reply, Request};
use crate::daemon::{Handle, Subscription};
use crate::failure::Failure;
use crate::trace::{Filter, FilterError, SYNTAX};

/// Clients at once; the others wait.
const MAX_CLIENTS: usize = 16;

/// Serves clients for ever. `timeout` is the time that a request may take to come in, and its reply
/// to be taken.
pub(crate) async fn serve(listener: UnixListener, daemon: Handle, timeout: Duration) {
    let clients = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(permit) = Arc::clone(&clients).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let daemon = daemon.clone();
                tokio::task::spawn_local(async move {
                    if let Err(error) = converse(stream, &daemon, timeout).await {
                        debug!("control socket: {error}");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                warn!("control socket: {error}");
                // Out of descriptors, most likely: give those who hold some time to end.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(
    stream: UnixStream,
    daemon: &Handle,
    timeout: Duration,
) -> Result<(), std::io::Error> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let limit = MAX_REQUEST as u64;
        let mut limited = (&mut reader).take(limit);
        let read = limited.read_until(b'\n', &mut line);
        let (reply, then) = match tokio::time::timeout(timeout, read).await {
            Ok(read) => match read? {
                0 => return Ok(()),
                _ if line.ends_with(b"\n") => answer(&line, daemon),
                _ if line.len() == MAX_REQUEST => {
                    let text = format!("a request has at most {MAX_REQUEST} octets");
                    (Reply::Error(text), Then::Close)
                }
                _ => {
                    let text = "the request does not end with a newline".to_owned();
                    (Reply::Error(text), Then::Close)
                }
            },
            Err(_) => (Reply::Error("no request came in time".to_owned()), Then::Close),
        };
        send(&mut writer, &reply, timeout).await?;
        match then {
            Then::GoOn => {}
            Then::Close => return writer.shutdown().await,
            Then::Leave => {
                daemon.leave();
                return writer.shutdown().await;
            }
            Then::Trace(subscription) => {
                return trace(*subscription, &mut reader, &mut writer, timeout).await;
            }
        }
    }
}

async fn send(
    writer: &mut OwnedWriteHalf,
    reply: &Reply,
    timeout: Duration,
) -> Result<(), std::io::Error> {
    let mut text = serde_json::to_vec(reply)?;
    text.push(b'\n');
    tokio::time::timeout(timeout, writer.write_all(&text)).await?
}

/// Tells of packets until the client goes, or the translator does.
async fn trace(
    mut subscription: Subscription,
    reader: &mut BufReader<OwnedReadHalf>,
    writer: &mut OwnedWriteHalf,
    timeout: Duration,
) -> Result<(), std::io::Error> {
    let mut rest = [0; 64];
    loop {
        tokio::select! {
            line = subscription.lines.recv() => match line {
                Some(line) => send(writer, &Reply::Trace(Box::new(line)), timeout).await?,
                None => return writer.shutdown().await,
            },
            // Nothing more is asked on this connection: the client has gone, or is to go.
            _ = reader.read(&mut rest) => return Ok(()),
        }
    }
}

/// What follows a reply.
enum Then {
    /// The next request.
    GoOn,
    /// The end of the connection.
    Close,
    /// The end of the daemon.
    Leave,
    /// Packets.
    Trace(Box<Subscription>),
}

fn answer(line: &[u8], daemon: &Handle) -> (Reply, Then) {
    let request = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => {
            let text = format!("this request is not understood: {error}");
            return (Reply::Error(text), Then::GoOn);
        }
    };
    let reply = match request {
        Request::Status {} => Reply::Status(daemon.status()),
        Request::Stats {} => Reply::Stats(daemon.stats()),
        Request::Reload {} => {
            let reloaded = daemon.reload();
            match &reloaded {
                Ok(done) => info!("{done}"),
                Err(failure) => error!("nothing is reloaded: {}", failure.line()),
            }
            done(reloaded)
        }
        Request::Down { name } => match daemon.down(&name) {
            Some(ended) => done(ended.map(|()| format!("{name} is taken down"))),
            None => Reply::Unknown(name),
        },
        Request::Leave {} => {
            let text = "the daemon ends; its kernel engines go on".to_owned();
            return (Reply::Done(text), Then::Leave);
        }
        Request::Trace { name, filter } => match start_trace(daemon, &name, &filter) {
            Ok(subscription) => {
                let text = format!("tracing {name}");
                return (Reply::Done(text), Then::Trace(Box::new(subscription)));
            }
            Err(failure) => failed(&failure),
        },
    };
    (reply, Then::GoOn)
}

fn start_trace(daemon: &Handle, name: &str, filter: &str) -> Result<Subscription, Failure> {
    let filter: Filter =
        filter.parse().map_err(|error: FilterError| Failure::usage(error.to_string(), SYNTAX))?;
    daemon.trace(name, filter)
}

fn done(result: Result<String, Failure>) -> Reply {
    match result {
        Ok(text) => Reply::Done(text),
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> Reply {
    let (text, hint, config) = failure.parts();
    Reply::Failed { text, hint, config }
}
