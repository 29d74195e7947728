//! Queries by UDP, received and answered in batches.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::rc::Rc;

use fordway_net::{Peer, RecvBatch, SendBatch};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::sockets::Transport;
use super::worker::{Client, Worker};
use fordway_serve::spawn_here;

/// Most queries that are received with one system call.
const BATCH: usize = 64;
/// Longest query that is read, in octets: a name, and an OPT record with more options than clients send.
const LONGEST: usize = 2048;

/// A socket, and the answers that are about to leave by it.
pub(super) struct Datagrams {
    socket: UdpSocket,
    out: RefCell<SendBatch>,
    /// Notified when `out` has something.
    filled: Notify,
}

impl Datagrams {
    pub(super) fn new(socket: UdpSocket) -> Self {
        Datagrams { socket, out: RefCell::default(), filled: Notify::new() }
    }

    /// Serves the socket; ends never.
    pub(super) fn run(self: Rc<Self>, worker: Rc<Worker>) -> impl Future<Output = ()> {
        let sender = Rc::clone(&self).send_late(Rc::clone(&worker));
        async move {
            spawn_here(sender);
            self.receive(worker).await;
        }
    }

    async fn receive(self: Rc<Self>, worker: Rc<Worker>) {
        let mut batch = RecvBatch::new(BATCH, LONGEST);
        loop {
            if self.socket.readable().await.is_err() {
                return;
            }
            let mut received = 0;
            let _ = self.socket.try_io(Interest::READABLE, || {
                // The pending error of an earlier answer is reported once; then there may be queries.
                let first = batch.recv(&self.socket);
                received = first.or_else(|_| batch.recv(&self.socket)).unwrap_or(0);
                // Fewer than there is room for were all: no further call is needed to know that nothing is left.
                if received < BATCH { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            if received > 0 {
                self.serve(&worker, &batch);
            }
            if received == BATCH {
                // More may be there; but other tasks have to run, too: answers from upstream, connections.
                yield_now().await;
            }
        }
    }

    /// Answers what can be answered at once; for the rest, waits in a task each.
    fn serve(self: &Rc<Self>, worker: &Rc<Worker>, batch: &RecvBatch) {
        let active = worker.shared.active.load_full();
        let now = worker.now();
        let mut out = self.out.borrow_mut();
        let before = out.len();
        for datagram in batch.iter() {
            let peer = datagram.peer;
            let client = Client { address: peer.ip(), transport: Transport::Udp };
            let waiting =
                out.push(&peer, |out| worker.handle(&active, client, datagram.octets, now, out));
            if let Some(waiting) = waiting {
                let (socket, worker) = (Rc::clone(self), Rc::clone(worker));
                spawn_here(async move {
                    worker.finish(waiting, |write| socket.push(&worker, &peer, write)).await;
                });
            }
        }
        let answered = (out.len() - before) as u64;
        drop(out);
        self.flush(worker);
        if answered > 0 {
            let micros = worker.now().instant.saturating_duration_since(now.instant).as_micros();
            worker.counters().took(micros as u64, answered);
        }
    }

    /// An answer that leaves with others that are made in the same turn.
    fn push(&self, worker: &Worker, peer: &Peer, write: &dyn Fn(&mut Vec<u8>)) {
        let waiting = {
            let mut out = self.out.borrow_mut();
            out.push(peer, write);
            out.len()
        };
        if waiting >= BATCH {
            self.flush(worker);
        } else {
            self.filled.notify_one();
        }
    }

    async fn send_late(self: Rc<Self>, worker: Rc<Worker>) {
        loop {
            self.filled.notified().await;
            self.flush(&worker);
        }
    }

    /// Sends the waiting answers.
    pub(super) fn flush(&self, worker: &Worker) {
        let mut out = self.out.borrow_mut();
        if !out.is_empty() {
            let unsent = out.send(&self.socket);
            worker.counters().dropped.unsent.add(unsent as u64);
        }
    }
}
