//! Tunnels: CONNECT (RFC 9110 section 9.3.6) and what comes of Upgrade.

mod direction;

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::conn::{Conn, Watch};
use super::worker::Worker;
use direction::Direction;

/// Carries octets until both sides have ended, one is broken, or nothing has come for `idle`. Counts the
/// tunnel and its octets; tells how many octets went to the client.
pub(super) async fn run(
    client: &mut Conn,
    server: &mut Conn,
    watch: &mut Watch,
    idle: Duration,
    worker: &Rc<Worker>,
) -> u64 {
    let _open = worker.tunnel();
    let pipes = &worker.pipes;
    let (mut up, mut down) = (Direction::default(), Direction::default());
    let mut deadline = Instant::now() + idle;
    let mut before = 0;
    poll_fn(|cx| {
        let one = up.poll(cx, client, server, pipes);
        let other = down.poll(cx, server, client, pipes);
        match (one, other) {
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => return Poll::Ready(()),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(()),
            _ => {}
        }
        let moved = up.moved() + down.moved();
        if moved != before {
            before = moved;
            deadline = Instant::now() + idle;
        }
        if watch.poll_late(cx, deadline) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    worker.counters().octets_in.add(up.octets());
    worker.counters().octets_out.add(down.octets());
    down.octets()
}
