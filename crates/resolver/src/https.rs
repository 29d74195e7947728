//! Questions by HTTPS (RFC 8484), over HTTP/2 by the library.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hickory_net::NetError;
use hickory_net::h2::HttpsClientStream;
use hickory_net::runtime::TokioRuntimeProvider;
use hickory_net::xfer::DnsRequestSender;
use hickory_proto::op::{DnsRequest, DnsRequestOptions, Message};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::error::AttemptError;
use super::request::{IDLE, Request};
use super::tls::Tls;

/// How many questions are under way on a connection at once; servers allow about a hundred streams.
const MOST_WAITING: usize = 100;

/// Makes a connection.
pub(super) async fn connect(
    server: SocketAddr,
    tls: &Tls,
    path: &str,
) -> io::Result<HttpsClientStream> {
    let config = Arc::clone(&tls.config);
    let name = Arc::from(&*tls.name.to_str());
    HttpsClientStream::builder(config, TokioRuntimeProvider::new())
        .build(server, name, Arc::from(path))
        .await
        .map_err(|error| io::Error::other(error.to_string()))
}

/// Serves the questions of `queue` until the connection breaks, or nothing has come for a while.
pub(super) async fn serve(
    client: HttpsClientStream,
    queue: &mut mpsc::Receiver<Request>,
    patience: Duration,
) -> io::Result<()> {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            request = queue.recv(), if under_way.len() < MOST_WAITING => {
                let Some(request) = request else { return Ok(()) };
                under_way.push(ask(client.clone(), request, patience));
            }
            Some(result) = under_way.next(), if !under_way.is_empty() => result?,
            () = sleep(IDLE), if under_way.is_empty() => return Ok(()),
        }
    }
}

/// Asks one question; an error is one of the connection.
async fn ask(
    mut client: HttpsClientStream,
    mut request: Request,
    patience: Duration,
) -> io::Result<()> {
    let Ok(message) = Message::from_vec(&request.query) else { return Ok(()) };
    let message = DnsRequest::new(message, DnsRequestOptions::default());
    let mut responses = client.send_message(message);
    let response = tokio::select! {
        response = timeout(2 * patience, responses.next()) => response,
        () = request.answer.closed() => return Ok(()),
    };
    let (answer, result) = match response {
        Ok(Some(Ok(response))) => {
            let mut octets = response.into_buffer();
            if let Some(id) = octets.get_mut(..2) {
                // RFC 8484 section 4.1: all are sent with identifier 0.
                id.copy_from_slice(&request.query[..2]);
            }
            (Ok(octets), Ok(()))
        }
        Ok(Some(Err(NetError::Proto(_)))) => (Err(AttemptError::Malformed), Ok(())),
        Ok(Some(Err(error @ NetError::H2(_)))) => {
            (Err(AttemptError::Closed), Err(io::Error::other(error.to_string())))
        }
        // An HTTP status other than success, or a body of another type.
        Ok(Some(Err(_))) => (Err(AttemptError::Malformed), Ok(())),
        Ok(None) | Err(_) => (Err(AttemptError::Closed), Err(io::ErrorKind::TimedOut.into())),
    };
    let _ = request.answer.send(answer);
    result
}
