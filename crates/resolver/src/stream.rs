//! Many questions under way on one stream (RFC 7766): each with an identifier of its own, answered in any order.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::random;
use super::request::Request;

/// How many questions are under way on a connection at once.
const MOST_WAITING: usize = 512;
/// How much is read at once.
const CHUNK: usize = 16_384;
/// What stands before each message (RFC 1035 section 4.2.2).
const LENGTH: usize = 2;

/// Serves the questions of `queue` until the server closes, falls silent, or nothing has come for as long as `idle`.
///
/// A server that leaves questions unanswered for twice `patience` counts as gone.
pub(super) async fn serve<S: AsyncRead + AsyncWrite>(
    stream: S,
    queue: &mut mpsc::Receiver<Request>,
    patience: Duration,
    idle: Duration,
) -> io::Result<()> {
    let (mut reader, mut writer) = split(stream);
    let mut waiting = Waiting::default();
    let mut incoming = Vec::new();
    let mut chunk = vec![0; CHUNK];
    let mut outgoing = Vec::new();
    let mut unflushed = false;
    let mut end = Instant::now() + idle;
    loop {
        tokio::select! {
            read = reader.read(&mut chunk) => {
                let read = read?;
                if read == 0 {
                    return Ok(());
                }
                incoming.extend_from_slice(&chunk[..read]);
                waiting.answer(&mut incoming);
                end = Instant::now() + if waiting.is_empty() { idle } else { 2 * patience };
            }
            request = queue.recv(), if waiting.has_room() => {
                let Some(request) = request else { return Ok(()) };
                if waiting.is_empty() {
                    end = Instant::now() + 2 * patience;
                }
                waiting.send(request, &mut outgoing)?;
            }
            written = push(&mut writer, &mut outgoing, &mut unflushed), if !outgoing.is_empty() || unflushed => written?,
            () = sleep_until(end) => {
                return if waiting.is_empty() { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) };
            }
        }
    }
}

/// Writes a part of what is to be sent; once all is written, sends what the stream holds back. May be given up at any
/// point.
async fn push<W: AsyncWrite + Unpin>(
    writer: &mut W,
    outgoing: &mut Vec<u8>,
    unflushed: &mut bool,
) -> io::Result<()> {
    if outgoing.is_empty() {
        writer.flush().await?;
        *unflushed = false;
        return Ok(());
    }
    let written = writer.write(outgoing).await?;
    if written == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    }
    outgoing.drain(..written);
    *unflushed = true;
    Ok(())
}

/// Questions without an answer yet, by the identifier that they were sent with.
#[derive(Default)]
struct Waiting(HashMap<u16, Request>);

impl Waiting {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one more may be sent. Those whose asker has gone away don't count.
    fn has_room(&mut self) -> bool {
        if self.0.len() >= MOST_WAITING {
            self.0.retain(|_, request| !request.answer.is_closed());
        }
        self.0.len() < MOST_WAITING
    }

    /// Writes a question to `outgoing` under a free identifier.
    fn send(&mut self, request: Request, outgoing: &mut Vec<u8>) -> io::Result<()> {
        let Ok(len) = u16::try_from(request.query.len()) else { return Ok(()) };
        let id = loop {
            let id = u16::from_ne_bytes(random::octets()?);
            if !self.0.contains_key(&id) {
                break id;
            }
        };
        outgoing.extend(len.to_be_bytes());
        outgoing.extend(id.to_be_bytes());
        outgoing.extend(&request.query[2..]);
        self.0.insert(id, request);
        Ok(())
    }

    /// Hands out the whole messages of `incoming`, and leaves the rest.
    fn answer(&mut self, incoming: &mut Vec<u8>) {
        let mut at = 0;
        while let Some(length) = incoming[at..].first_chunk::<LENGTH>() {
            let begin = at + LENGTH;
            let end = begin + usize::from(u16::from_be_bytes(*length));
            let Some(message) = incoming.get(begin..end) else { break };
            at = end;
            let Some(id) = message.first_chunk() else { continue };
            let Some(request) = self.0.remove(&u16::from_be_bytes(*id)) else { continue };
            let mut response = message.to_vec();
            response[..2].copy_from_slice(&request.query[..2]);
            // The asker may have found an answer elsewhere.
            let _ = request.answer.send(Ok(response));
        }
        incoming.drain(..at);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    type Response = oneshot::Receiver<Result<Vec<u8>, super::super::error::AttemptError>>;

    fn request(query: &[u8]) -> (Request, Response) {
        let (answer, response) = oneshot::channel();
        (Request { query: query.to_vec(), answer }, response)
    }

    #[test]
    fn responses_find_their_questions_in_any_order_and_in_any_pieces() {
        let mut waiting = Waiting::default();
        let mut outgoing = Vec::new();
        let (first, mut to_first) = request(b"\x00\x01first");
        let (second, mut to_second) = request(b"\x00\x01second");
        waiting.send(first, &mut outgoing).unwrap();
        waiting.send(second, &mut outgoing).unwrap();
        assert_eq!((outgoing[1], outgoing[10]), (7, 8), "lengths");
        let [first_id, second_id] = [2, 11].map(|at| [outgoing[at], outgoing[at + 1]]);
        assert_ne!(first_id, second_id);

        let mut stream = Vec::new();
        for (id, text) in [(second_id, b"two"), (first_id, b"one")] {
            stream.extend([0, 5]);
            stream.extend(id);
            stream.extend(text);
        }
        let mut incoming = Vec::new();
        for octet in stream {
            incoming.push(octet);
            waiting.answer(&mut incoming);
        }
        assert_eq!(to_first.try_recv().unwrap().unwrap(), b"\x00\x01one");
        assert_eq!(to_second.try_recv().unwrap().unwrap(), b"\x00\x01two");
        assert!(waiting.is_empty() && incoming.is_empty());
    }

    #[test]
    fn responses_to_nobody_and_empty_ones_are_passed_over() {
        let mut waiting = Waiting::default();
        let mut incoming = vec![0, 0, 0, 1, 7, 0, 4, 9, 9, 9, 9, 0, 3, 1];
        waiting.answer(&mut incoming);
        assert_eq!(incoming, [0, 3, 1], "the beginning of the next stays");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_questions_is_closed() {
        let (here, _there) = tokio::io::duplex(512);
        let (_askers, mut queue) = mpsc::channel(1);
        let short = Duration::from_millis(10);
        serve(here, &mut queue, 1000 * short, short).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_leaves_questions_unanswered_is_gone() {
        let (here, _there) = tokio::io::duplex(512);
        let (askers, mut queue) = mpsc::channel(1);
        let (request, mut response) = request(b"\x00\x01query");
        askers.send(request).await.unwrap();
        let short = Duration::from_millis(10);
        let error = serve(here, &mut queue, short, 1000 * short).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(response.try_recv().is_err(), "whoever waits is told to ask elsewhere");
    }

    #[test]
    fn a_full_connection_makes_room_when_askers_go_away() {
        let mut waiting = Waiting::default();
        let mut outgoing = Vec::new();
        let mut responses = Vec::new();
        for _ in 0..MOST_WAITING {
            assert!(waiting.has_room());
            let (request, response) = request(b"\x00\x00query");
            waiting.send(request, &mut outgoing).unwrap();
            responses.push(response);
        }
        assert!(!waiting.has_room());
        responses.pop();
        assert!(waiting.has_room());
    }
}
