//! Octets both ways, whatever they mean: CONNECT (RFC 9110 section 9.3.6) and what comes of Upgrade.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use super::conn::{Conn, Watch};
use super::relay::{Broken, Relay};
use super::response::Content;

/// One direction.
struct Way {
    relay: Relay,
    /// The end has been passed on.
    ended: bool,
}

impl Way {
    fn new() -> Way {
        Way { relay: Relay::response(BytesMut::new(), Content::Close, false), ended: false }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Conn,
        to: &mut Conn,
    ) -> Poll<Result<(), Broken>> {
        if !self.ended {
            ready!(self.relay.poll(cx, from, to))?;
            // Half-close: the other direction may go on.
            let _ = ready!(Pin::new(&mut to.stream).poll_shutdown(cx));
            self.ended = true;
        }
        Poll::Ready(Ok(()))
    }
}

/// Carries octets until both sides have ended, one is broken, or nothing has come for `idle`. Tells how many octets went
/// to the server, and how many to the client.
pub(super) async fn run(
    client: &mut Conn,
    server: &mut Conn,
    watch: &mut Watch,
    idle: Duration,
) -> (u64, u64) {
    let (mut up, mut down) = (Way::new(), Way::new());
    let mut deadline = Instant::now() + idle;
    poll_fn(|cx| {
        let (one, other) = (up.poll(cx, client, server), down.poll(cx, server, client));
        match (one, other) {
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => return Poll::Ready(()),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(()),
            _ => {}
        }
        if up.relay.moved || down.relay.moved {
            (up.relay.moved, down.relay.moved) = (false, false);
            deadline = Instant::now() + idle;
        }
        if watch.poll_late(cx, deadline) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (up.relay.octets, down.relay.octets)
}
