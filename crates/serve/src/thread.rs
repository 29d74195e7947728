//! The threads of a service: start, commands, end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use tokio::runtime;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

/// The threads of a service that share its work.
#[derive(Debug)]
pub struct Threads {
    service: &'static str,
    all: Vec<JoinHandle<()>>,
}

impl Threads {
    /// No threads yet; `service` names the service in the log.
    pub fn new(service: &'static str) -> Self {
        Threads { service, all: Vec::new() }
    }

    /// Starts one more thread.
    ///
    /// # Errors
    ///
    /// The system has no room for a thread.
    pub fn start(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.all.push(Builder::new().name(name).spawn(run)?);
        Ok(())
    }

    /// Starts one more thread, which runs `run` in a tokio runtime and a `LocalSet`. `enter` makes what belongs to the
    /// runtime, on the calling thread.
    ///
    /// # Errors
    ///
    /// Those of `enter`, or the system has no room for a thread.
    pub fn start_local<T: Send + 'static>(
        &mut self,
        name: String,
        enter: impl FnOnce() -> io::Result<T>,
        run: impl AsyncFnOnce(T) + Send + 'static,
    ) -> io::Result<()> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = {
            let _inside = runtime.enter();
            enter()?
        };
        self.start(name, move || LocalSet::new().block_on(&runtime, run(entered)))
    }

    /// Whether all threads run.
    pub fn are_running(&self) -> bool {
        !self.all.iter().any(JoinHandle::is_finished)
    }

    /// Whether all threads have ended.
    pub fn have_ended(&self) -> bool {
        self.all.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all threads have ended. Tell them to end first.
    pub fn join(&mut self) {
        for thread in self.all.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the {} has panicked", self.service);
            }
        }
    }

    /// Detaches the threads: [`Threads::join`] does not wait for them.
    pub fn detach(&mut self) {
        self.all.clear();
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
