//! Answers that clients have not read, which the server has to hold.
//!
//! Three bounds, from soft to hard. No more queries are read from a connection with [`SOME`] octets unread. A
//! connection with more than [`MOST`] is closed, and so is one whose client network has too many, or all clients
//! together.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

use fordway_serve::{Network, Tally, Ticket};

/// Octets of a connection beyond which no more queries are read.
const SOME: usize = 64 << 10;
/// Octets that a connection may have.
const MOST: usize = 1 << 20;
/// Octets that a client network may have, and all together; the more there are, the less a network may have.
const MOST_OF_NETWORK: usize = 8 << 20;
const MOST_OF_ALL: usize = 64 << 20;

/// Octets that a connection's client has not read.
#[derive(Debug)]
pub(super) struct Unread {
    tally: Arc<Tally>,
    network: Network,
    octets: Cell<usize>,
    /// Notified when octets were written.
    less: Notify,
    over: Notify,
}

/// Octets of an answer, until it is dropped.
#[derive(Debug)]
pub(super) struct Octets {
    unread: Rc<Unread>,
    octets: usize,
    _ticket: Ticket,
}

impl Unread {
    pub(super) fn new(tally: Arc<Tally>, network: Network) -> Rc<Unread> {
        let (less, over) = (Notify::new(), Notify::new());
        Rc::new(Unread { tally, network, octets: Cell::new(0), less, over })
    }

    /// Returns when another query may be read.
    pub(super) async fn room(&self) {
        while self.octets.get() >= SOME {
            self.less.notified().await;
        }
    }

    /// Counts an answer. `None`: it is too much, and the connection has to end.
    pub(super) fn add(self: &Rc<Self>, octets: usize) -> Option<Octets> {
        let ticket = || self.tally.enter_many(self.network, octets, MOST_OF_ALL, MOST_OF_NETWORK);
        let ticket = (self.octets.get() + octets <= MOST).then(ticket);
        let Some(Ok(ticket)) = ticket else {
            self.over.notify_one();
            return None;
        };
        self.octets.set(self.octets.get() + octets);
        Some(Octets { unread: Rc::clone(self), octets, _ticket: ticket })
    }

    /// Returns when an answer was too much.
    pub(super) async fn over(&self) {
        self.over.notified().await;
    }
}

impl Drop for Octets {
    fn drop(&mut self) {
        let unread = &self.unread;
        unread.octets.set(unread.octets.get() - self.octets);
        unread.less.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fordway_serve::ClientLen;

    fn unread(tally: &Arc<Tally>, number: u8) -> Rc<Unread> {
        let network = Network::of([192, 0, number, 1].into(), ClientLen::default());
        Unread::new(Arc::clone(tally), network)
    }

    #[tokio::test]
    async fn a_connection_a_network_and_all_are_bounded() {
        let tally = Arc::new(Tally::default());
        let first = unread(&tally, 2);
        let held: Vec<_> = std::iter::from_fn(|| first.add(65_537)).collect();
        assert_eq!(held.len(), 15, "a connection");
        first.over().await;
        let fill = |number| {
            let connection = unread(&tally, number);
            std::iter::from_fn(move || connection.add(65_537)).collect::<Vec<_>>()
        };
        let others: Vec<Vec<_>> = (0..20).map(|_| fill(2)).collect();
        let of_network = tally.count();
        assert!(of_network <= MOST_OF_NETWORK && of_network > MOST_OF_NETWORK - 65_537);
        assert!(others[19].is_empty());
        // However many networks there are, one more has room.
        let many: Vec<Vec<_>> =
            (3..=200).flat_map(|number| (0..9).map(move |_| number)).map(fill).collect();
        assert!(tally.count() <= MOST_OF_ALL);
        assert!(unread(&tally, 201).add(4096).is_some());
        drop((held, others, many));
        assert_eq!(tally.count(), 0);
    }
}
