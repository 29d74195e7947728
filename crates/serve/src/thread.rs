//! The threads of a service: start, commands, end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use tokio::runtime::{self, Runtime};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

/// State that the threads of a service share.
pub trait Shared: Send + Sync + 'static {
    /// Tells all threads to end.
    fn stop(&self);
}

/// The threads of a service that share its work. Dropping it ends them, and waits for that.
#[derive(Debug)]
pub struct Threads<S: Shared> {
    service: &'static str,
    /// What they share.
    pub shared: Arc<S>,
    all: Vec<JoinHandle<()>>,
}

impl<S: Shared> Threads<S> {
    /// Starts a thread for each of `parts`: `enter` makes what it works with on the calling thread, `run` is its body.
    /// `service` names the service in the log, `name` and a number the threads.
    ///
    /// # Errors
    ///
    /// Those of `enter`, or the system has no room for a thread.
    pub fn start<P, T: Send + 'static>(
        service: &'static str,
        name: &str,
        shared: S,
        parts: Vec<P>,
        enter: impl Fn(&Arc<S>, usize, P) -> io::Result<T>,
        run: impl FnOnce(Arc<S>, usize, T) + Copy + Send + 'static,
    ) -> io::Result<Self> {
        let mut threads = Threads { service, shared: Arc::new(shared), all: Vec::new() };
        for (index, part) in parts.into_iter().enumerate() {
            let shared = Arc::clone(&threads.shared);
            let entered = enter(&shared, index, part)?;
            let thread = Builder::new().name(format!("{name}-{index}"));
            threads.all.push(thread.spawn(move || run(shared, index, entered))?);
        }
        Ok(threads)
    }

    /// As [`Threads::start`]; each thread has a tokio runtime, in which `enter` is called, and a `LocalSet`.
    pub fn start_local<P, T: Send + 'static>(
        service: &'static str,
        name: &str,
        shared: S,
        parts: Vec<P>,
        enter: impl Fn(P) -> io::Result<T>,
        run: impl AsyncFnOnce(Arc<S>, usize, T) + Copy + Send + 'static,
    ) -> io::Result<Self> {
        let enter = |_: &Arc<S>, _, part| {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            let inside = runtime.enter();
            let entered = enter(part)?;
            drop(inside);
            Ok((runtime, entered))
        };
        let run = move |shared, index, (runtime, entered): (Runtime, T)| {
            LocalSet::new().block_on(&runtime, run(shared, index, entered));
        };
        Self::start(service, name, shared, parts, enter, run)
    }

    /// Whether all threads run.
    pub fn are_running(&self) -> bool {
        !self.all.iter().any(JoinHandle::is_finished)
    }

    /// Whether all threads have ended.
    pub fn have_ended(&self) -> bool {
        self.all.iter().all(JoinHandle::is_finished)
    }

    /// Tells the threads to end, and does not wait for them.
    pub fn detach(&mut self) {
        self.shared.stop();
        self.all.clear();
    }
}

impl<S: Shared> Drop for Threads<S> {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.all.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the {} has panicked", self.service);
            }
        }
    }
}

/// Wakes [`Threads`] with a tokio runtime each, for new settings or the end.
#[derive(Debug)]
pub struct Signals {
    stopping: AtomicBool,
    wakes: Vec<Notify>,
}

impl Signals {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        let wakes = (0..threads).map(|_| Notify::new()).collect();
        Signals { stopping: AtomicBool::new(false), wakes }
    }

    /// Wakes all threads.
    pub fn wake(&self) {
        self.wakes.iter().for_each(Notify::notify_one);
    }

    /// Ends all threads.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether threads are to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits until a thread is woken.
    pub async fn woken(&self, thread: usize) {
        self.wakes[thread].notified().await;
    }
}

/// A thread with a tokio runtime that carries out commands `C`. Dropping it ends the thread, and waits for that.
#[derive(Debug)]
pub struct Commanded<C> {
    service: &'static str,
    /// `None` while it ends.
    commands: Option<UnboundedSender<C>>,
    thread: Option<JoinHandle<()>>,
}

/// Signals that a [`Commanded`] thread is ready.
#[derive(Debug)]
pub struct Ready(SyncSender<io::Result<()>>);

impl Ready {
    /// The thread is ready.
    pub fn tell(self) {
        // The caller may be gone.
        let _gone = self.0.send(Ok(()));
    }
}

impl<C: Send + 'static> Commanded<C> {
    /// Starts a thread of the name `thread`, which runs `run` in a tokio runtime and a `LocalSet`; returns when it is
    /// ready. `run` has to return when the commands end. `service` names the service in the log.
    ///
    /// # Errors
    ///
    /// The system's, or what `run` returned before it was ready.
    pub fn start<R>(service: &'static str, thread: &str, run: R) -> io::Result<Self>
    where
        R: AsyncFnOnce(UnboundedReceiver<C>, Ready) -> io::Result<()> + Send + 'static,
    {
        let (commands, receiver) = unbounded_channel();
        let (ready, started) = sync_channel(1);
        let work = move || {
            let done = runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .and_then(|it| LocalSet::new().block_on(&it, run(receiver, Ready(ready.clone()))));
            if let Err(error) = done {
                let _gone = ready.send(Err(error));
            }
        };
        let thread = Builder::new().name(thread.to_owned()).spawn(work)?;
        let failed = |_| Err(io::Error::other("the thread has ended"));
        started.recv().unwrap_or_else(failed)?;
        Ok(Commanded { service, commands: Some(commands), thread: Some(thread) })
    }

    /// Gives the thread a command; `None` if it has ended by itself.
    pub fn send(&self, command: C) -> Option<()> {
        self.commands.as_ref()?.send(command).ok()
    }

    /// Gives the thread a command, and waits for the answer; `None` if the thread has ended by itself.
    pub fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> C) -> Option<T> {
        let (answer, answered) = sync_channel(1);
        self.send(command(answer))?;
        answered.recv().ok()
    }
}

impl<C> Commanded<C> {
    /// Whether the thread runs.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl<C> Drop for Commanded<C> {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of {} panicked", self.service);
        }
    }
}
