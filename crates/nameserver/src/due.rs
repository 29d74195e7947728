//! Answers that are to be made anew, until the thread's task takes them (`renew`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;

use hickory_proto::op::Message;
use tokio::sync::Notify;

use super::cache::Key;
use super::query::Query;

/// Answers that wait to be made, of each thread.
const WAITING: usize = 256;

/// What a thread is to make anew.
#[derive(Default)]
pub(super) struct Renewals {
    waiting: RefCell<VecDeque<Due>>,
    filled: Notify,
}

/// An answer that expires soon.
pub(super) struct Due {
    pub(super) client: IpAddr,
    pub(super) key: Key,
    pub(super) message: Message,
    pub(super) expires: u64,
}

impl Renewals {
    /// Has the answer to a query made anew, for the client's policy.
    pub(super) fn push(&self, client: IpAddr, key: Key, query: Query<'_>, expires: u64) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() < WAITING
            && let Some(message) = query.to_message(key.name())
        {
            waiting.push_back(Due { client, key, message, expires });
            self.filled.notify_one();
        }
    }

    /// The next that is to be made.
    pub(super) async fn next(&self) -> Due {
        loop {
            let next = self.waiting.borrow_mut().pop_front();
            match next {
                Some(due) => return due,
                None => self.filled.notified().await,
            }
        }
    }
}
