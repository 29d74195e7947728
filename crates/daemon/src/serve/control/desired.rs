//! Requests of controllers: keys that they set, and changes that they watch.

use std::fmt;
use std::io;
use std::time::Duration;

use fordway_control::{Change, Event, MAX_DOCUMENT, Reply, Request};
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout as within;

use super::server::{failed, send};
use crate::serve::desired::Wanted;
use crate::serve::requests::Requests;

/// Octets that are read at once; each time something has to come within the time of a request.
const PIECE: u64 = 1 << 20;

/// How a document is to be applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Document {
    pub(super) octets: u64,
    pub(super) replace: bool,
    pub(super) dry_run: bool,
}

/// The request, as it is written.
impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Document { octets, replace, dry_run } = *self;
        let request = Request::Apply { octets, replace, dry_run };
        f.write_str(&serde_json::to_string(&request).map_err(|_| fmt::Error)?)
    }
}

/// Reads the document behind a request, and has it applied. An error: the connection can't go on.
pub(super) async fn apply(
    document: Document,
    reader: &mut BufReader<OwnedReadHalf>,
    requests: &Requests,
    timeout: Duration,
) -> io::Result<Reply> {
    let mut octets = Vec::new();
    while (octets.len() as u64) < document.octets {
        let before = octets.len();
        let piece = PIECE.min(document.octets - before as u64);
        within(timeout, (&mut *reader).take(piece).read_to_end(&mut octets)).await??;
        if octets.len() == before {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let Document { replace, dry_run, .. } = document;
    let read = move || Wanted::read(&octets, replace, dry_run);
    let wanted = match tokio::task::spawn_blocking(read).await.map_err(io::Error::other)? {
        Ok(wanted) => wanted,
        Err(failure) => return Ok(failed(&failure)),
    };
    let applied = requests.submit(move |daemon| daemon.apply(&wanted)).await?;
    Ok(match applied {
        Ok(applied) => Reply::Applied(applied),
        Err(failure) => failed(&failure),
    })
}

/// That a document is too long.
pub(super) fn too_long(octets: u64) -> Option<Reply> {
    let text = format!("a document has at most {MAX_DOCUMENT} octets, not {octets}");
    (octets > MAX_DOCUMENT).then_some(Reply::Error(text))
}

/// Tells of changes until the client goes.
pub(super) async fn watch(
    mut events: Receiver<Event>,
    generation: u64,
    reader: &mut BufReader<OwnedReadHalf>,
    writer: &mut OwnedWriteHalf,
    timeout: Duration,
) -> io::Result<()> {
    let first = Event { generation, change: Change::Watching {} };
    send(writer, &Reply::Event(first), timeout).await?;
    let (mut told, mut rest) = (generation, [0; 64]);
    loop {
        tokio::select! {
            event = events.recv() => {
                let event = match event {
                    Ok(event) => event,
                    Err(RecvError::Lagged(changes)) => {
                        Event { generation: told + changes, change: Change::Lost { changes } }
                    }
                    Err(RecvError::Closed) => return Ok(()),
                };
                told = event.generation;
                send(writer, &Reply::Event(event), timeout).await?;
            }
            // Nothing more is asked on this connection: the client has gone, or is to go.
            _ = reader.read(&mut rest) => return Ok(()),
        }
    }
}
