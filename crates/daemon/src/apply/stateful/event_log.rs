//! Events of the sweeper, for the logs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, SystemTime};

use fordway_config::LogEvent;
use fordway_engine::monotonic;
use fordway_xlat::nat64::Event;
use ipnet::Ipv6Net;
use tracing::warn;

use crate::natlog::{Logs, Record, What};
use fordway_control::LogStats;

/// Where events go. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct EventLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    logs: Mutex<Logs>,
    /// Threads that wait for the end of earlier logs.
    ending: Mutex<Vec<JoinHandle<()>>>,
    /// Bits of a subscriber's prefix; the same for as long as the translator runs.
    subscriber_len: u8,
    /// What changed configurations had no place for.
    unfit: AtomicU64,
}

impl EventLog {
    pub(crate) fn new(logs: Logs, subscriber_len: u8) -> EventLog {
        EventLog(Arc::new(Shared {
            logs: Mutex::new(logs),
            ending: Mutex::default(),
            subscriber_len,
            unfit: AtomicU64::new(0),
        }))
    }

    /// Replaces the logs. The old ones write what is queued, and end, on a thread of their own: a collector may not answer.
    pub(crate) fn set_logs(&self, logs: Logs) {
        let old = std::mem::replace(&mut *self.0.logs(), logs);
        let mut ending = self.0.ending.lock().unwrap_or_else(PoisonError::into_inner);
        ending.retain(|thread| !thread.is_finished());
        match Builder::new().name("log-end".to_owned()).spawn(move || drop(old)) {
            Ok(thread) => ending.push(thread),
            Err(error) => warn!("cannot make a thread for logs that end: {error}"),
        }
    }

    pub(crate) fn log_stats(&self) -> Vec<LogStats> {
        self.0.logs().stats()
    }

    /// What changed configurations had no place for.
    pub(crate) fn unfit(&self) -> u64 {
        self.0.unfit.load(Ordering::Relaxed)
    }

    pub(crate) fn add_unfit(&self, number: u64) {
        self.0.unfit.fetch_add(number, Ordering::Relaxed);
    }

    /// Takes an event. In the sweeper's thread, which must not wait.
    pub(crate) fn tell(&self, event: Event) {
        let wanted = match &event {
            Event::Probe { .. } => return,
            Event::BibCreated(..) | Event::BibRemoved(_) => LogEvent::Bindings,
            Event::SessionCreated(..) | Event::SessionRemoved(..) => LogEvent::Sessions,
            Event::BlockAssigned(..) | Event::BlockReleased(..) => LogEvent::Blocks,
        };
        let logs = self.0.logs();
        if logs.wants(wanted)
            && let Some(record) = self.0.record(event)
        {
            logs.put(&record);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let ending = self.ending.get_mut().unwrap_or_else(PoisonError::into_inner);
        ending.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Shared {
    fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, event: Event) -> Option<Record> {
        let subscriber = |prefix| Ipv6Net::new(prefix, self.subscriber_len).ok();
        let mut ago = Duration::ZERO;
        let what = match event {
            Event::BibCreated(binding, created) => {
                ago = monotonic().saturating_sub(created);
                What::BibCreated(binding)
            }
            Event::BibRemoved(binding) => What::BibRemoved(binding),
            Event::SessionCreated(binding, remote) => What::SessionCreated(binding, remote),
            Event::SessionRemoved(binding, remote, counts) => {
                What::SessionRemoved(binding, remote, counts)
            }
            Event::BlockAssigned(prefix, block) => What::BlockAssigned(subscriber(prefix)?, block),
            Event::BlockReleased(prefix, block) => What::BlockReleased(subscriber(prefix)?, block),
            Event::Probe { .. } => return None,
        };
        let now = SystemTime::now();
        Some(Record { time: now.checked_sub(ago).unwrap_or(now), what })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};

    use fordway_testhost::{PATIENCE, poll};
    use fordway_xlat::nat64::{Binding, Protocol};
    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn whoever_replaces_a_log_does_not_wait_for_its_collector() {
        let socket = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv6Addr::LOCALHOST, 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let listener: TcpListener = socket.into();
        let address = listener.local_addr().unwrap();
        // One connection waits to be accepted; further attempts are not answered.
        let _first = TcpStream::connect(address).unwrap();
        let text = format!(
            "[[translator]]\nname = 'nat64'\nmode = 'nat64'\npool6 = ['2001:db8:64::/96']\n\
             pool4 = ['192.0.2.1']\n\
             [[translator.log]]\nwhat = ['bindings']\nto = 'ipfix:tcp:{address}'\n"
        );
        let config = fordway_config::parse("test", &text).unwrap().config;
        let logs = &config.translators[0].nat64().unwrap().logs;
        let events = EventLog::new(Logs::start("nat64", logs).unwrap(), 128);
        let v6 = ("2001:db8:1::5".parse().unwrap(), 40_000);
        let v4 = ("192.0.2.1".parse().unwrap(), 1025);
        let binding = Binding { protocol: Some(Protocol::Tcp), v6, v4 };
        events.tell(Event::BibCreated(binding, monotonic()));
        let port = format!(":{:04X} 02 ", address.port());
        poll("the log to connect", || {
            let sockets = std::fs::read_to_string("/proc/thread-self/net/tcp6").ok()?;
            sockets.contains(&port).then_some(())
        });
        // Had it waited, the log would have ended without a connection, and the record would be lost.
        events.set_logs(Logs::default());
        drop(listener.accept().unwrap());
        let (mut collector, _) = listener.accept().unwrap();
        collector.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut header = [0; 2];
        collector.read_exact(&mut header).unwrap();
        assert_eq!(header, [0, 10], "a message of IPFIX");
    }
}
