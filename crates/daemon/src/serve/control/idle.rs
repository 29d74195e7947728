//! Clients that ask nothing make room for others.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::Notify;

/// Clients of whom no request is there, the one that has waited longest first.
#[derive(Clone, Default)]
pub(super) struct Idle(Rc<RefCell<VecDeque<Rc<Notify>>>>);

impl Idle {
    /// Waits for `request` as an idle client. `None`: another client needs the slot.
    pub(super) async fn wait<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        let needed = Rc::new(Notify::new());
        self.0.borrow_mut().push_back(Rc::clone(&needed));
        let came = tokio::select! {
            biased;
            came = request => Some(came),
            () = needed.notified() => None,
        };
        self.0.borrow_mut().retain(|it| !Rc::ptr_eq(it, &needed));
        came
    }

    /// Ends the wait of the first of them.
    pub(super) fn make_room(&self) {
        if let Some(first) = self.0.borrow_mut().pop_front() {
            first.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn the_client_that_has_waited_longest_makes_room() {
        let idle = Idle::default();
        let waits = |idle: &Idle| {
            let idle = idle.clone();
            async move { idle.wait(std::future::pending::<()>()).await }
        };
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let first = tokio::task::spawn_local(waits(&idle));
                let second = tokio::task::spawn_local(waits(&idle));
                tokio::task::yield_now().await;
                assert_eq!(idle.wait(async { 7 }).await, Some(7));
                assert_eq!(idle.0.borrow().len(), 2);
                idle.make_room();
                assert_eq!(first.await.unwrap(), None);
                assert!(!second.is_finished());
                idle.make_room();
                assert_eq!(second.await.unwrap(), None);
                // Nobody is left to go.
                idle.make_room();
            })
            .await;
    }
}
