//! Answering requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use super::{Command, MAX_REQUEST, Reply, Request};
use crate::daemon::Shared;

/// Clients at once; the others wait.
const MAX_CLIENTS: usize = 16;

/// Serves clients for ever. `timeout` is the time that a request may take to come in, and its reply
/// to be taken.
pub(crate) async fn serve(listener: UnixListener, shared: Arc<Shared>, timeout: Duration) {
    let clients = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(permit) = Arc::clone(&clients).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    if let Err(error) = converse(stream, &shared, timeout).await {
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
    shared: &Shared,
    timeout: Duration,
) -> Result<(), std::io::Error> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let limit = MAX_REQUEST as u64;
        let mut limited = (&mut reader).take(limit);
        let read = limited.read_until(b'\n', &mut line);
        let (reply, last) = match tokio::time::timeout(timeout, read).await {
            Ok(read) => match read? {
                0 => return Ok(()),
                _ if line.ends_with(b"\n") => (answer(&line, shared), false),
                _ if line.len() == MAX_REQUEST => {
                    (Reply::Error(format!("a request has at most {MAX_REQUEST} octets")), true)
                }
                _ => (Reply::Error("the request does not end with a newline".to_owned()), true),
            },
            Err(_) => (Reply::Error("no request came in time".to_owned()), true),
        };
        let mut text = serde_json::to_vec(&reply)?;
        text.push(b'\n');
        tokio::time::timeout(timeout, writer.write_all(&text)).await??;
        if last {
            return writer.shutdown().await;
        }
    }
}

fn answer(line: &[u8], shared: &Shared) -> Reply {
    match serde_json::from_slice(line) {
        Ok(Request { command: Command::Status }) => Reply::Status(shared.status()),
        Ok(Request { command: Command::Stats }) => Reply::Stats(shared.stats()),
        Err(error) => Reply::Error(format!("this request is not understood: {error}")),
    }
}
