//! Echo requests: one alone, and many of them while something happens.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fordway_testhost::{poll, poll_or};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with};

use super::netns::Netns;

/// Time between two requests, and how often the receiver looks whether it is to end.
const INTERVAL: Duration = Duration::from_millis(20);

/// A raw socket for echo requests to one address (RFC 792, RFC 4443 section 4).
struct Echo {
    socket: UdpSocket,
    to: SocketAddr,
    identifier: [u8; 2],
}

impl Echo {
    fn open(netns: &Netns, from: Option<&str>, to: &str) -> Echo {
        let to: IpAddr = to.parse().unwrap();
        let from: Option<IpAddr> = from.map(|from| from.parse().unwrap());
        let (family, protocol) = match to {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let flags = SocketFlags::CLOEXEC;
        let open = || {
            let socket = socket_with(family, SocketType::RAW, flags, Some(protocol)).unwrap();
            if let Some(from) = from {
                bind(&socket, &SocketAddr::new(from, 0)).unwrap();
            }
            socket
        };
        let identifier = (getrandom::u32().unwrap() as u16).to_be_bytes();
        Echo { socket: netns.inside(open).into(), to: SocketAddr::new(to, 0), identifier }
    }

    /// Sends a request. One that can't be sent is one without an answer.
    fn send(&self, number: usize) {
        let number = u16::try_from(number).expect("fewer requests than numbers").to_be_bytes();
        let kind = if self.to.is_ipv4() { 8 } else { 128 };
        let mut message = [kind, 0, 0, 0, 0, 0, 0, 0];
        message[4..6].copy_from_slice(&self.identifier);
        message[6..8].copy_from_slice(&number);
        if self.to.is_ipv4() {
            // The kernel computes the checksum of ICMPv6 alone.
            let words =
                message.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
            let sum: u32 = words.sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            message[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        let _ = self.socket.send_to(&message, self.to);
    }

    /// The number of an answer, if one comes within the socket's time.
    fn receive(&self) -> Option<usize> {
        let mut buffer = [0; 1500];
        let (len, _) = self.socket.recv_from(&mut buffer).ok()?;
        // A raw socket of IPv4 gives the header as well.
        let (header, kind) = match self.to {
            SocketAddr::V4(_) => (usize::from(buffer[0] & 15) * 4, 0),
            SocketAddr::V6(_) => (0, 129),
        };
        let message = buffer[..len].get(header..header + 8)?;
        let is_ours = message[0] == kind && message[4..6] == self.identifier;
        is_ours.then(|| usize::from(u16::from_be_bytes([message[6], message[7]])))
    }
}

/// One echo request, whose answer is not waited for.
pub(crate) struct Request(Echo);

impl Request {
    pub(crate) fn send(netns: &Netns, to: &str) -> Request {
        Request::of(Echo::open(netns, None, to))
    }

    /// Sends it with this source.
    pub(crate) fn send_from(netns: &Netns, from: &str, to: &str) -> Request {
        Request::of(Echo::open(netns, Some(from), to))
    }

    fn of(echo: Echo) -> Request {
        echo.socket.set_nonblocking(true).unwrap();
        echo.send(0);
        Request(echo)
    }

    /// Whether an answer has come by now.
    pub(crate) fn is_answered(&self) -> bool {
        // Other messages wait before it.
        let mut buffer = [0; 1];
        while self.0.socket.peek(&mut buffer).is_ok() {
            if self.0.receive().is_some() {
                return true;
            }
        }
        false
    }
}

/// Echo requests, 50 per second, until it is ended.
pub(crate) struct Ping {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    echo: Echo,
    /// Of each request whether it has been answered.
    answered: Mutex<Vec<bool>>,
    /// No further requests are sent.
    is_silent: AtomicBool,
    /// No further answers are taken.
    is_over: AtomicBool,
}

impl Ping {
    pub(crate) fn start(netns: &Netns, to: &str) -> Ping {
        let echo = Echo::open(netns, None, to);
        echo.socket.set_read_timeout(Some(INTERVAL)).unwrap();
        let shared = Arc::new(Shared {
            echo,
            answered: Mutex::default(),
            is_silent: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        Ping { shared, thread: Some(std::thread::spawn(move || of_thread.run())) }
    }

    /// How many requests have been sent.
    pub(crate) fn sent(&self) -> usize {
        self.shared.answered.lock().unwrap().len()
    }

    /// Waits until all requests before this moment have been answered. Gives how many these are.
    pub(crate) fn settle(&self) -> usize {
        let sent = self.sent();
        self.until_answered(sent);
        sent
    }

    /// Stops sending and waits for the last answers. None may be missing. Gives how many requests there were.
    pub(crate) fn end(self) -> usize {
        self.shared.fall_silent();
        self.settle()
    }

    /// Stops sending and waits for the answer to a last request. Gives how many requests there were, and the numbers of
    /// those that have no answer.
    pub(crate) fn end_with_losses(self) -> (usize, Vec<usize>) {
        self.shared.fall_silent();
        // What is sent last is answered last: who has no answer then gets none.
        let last = self.shared.send();
        poll_or(
            || self.shared.answered.lock().unwrap()[last].then_some(()),
            || "the answer to the last echo request".into(),
        );
        (last + 1, self.shared.lost(usize::MAX))
    }

    fn until_answered(&self, sent: usize) {
        poll_or(
            || self.shared.lost(sent).is_empty().then_some(()),
            || format!("answers to echo requests {:?} of {sent}", self.shared.lost(sent)),
        );
    }
}

impl Drop for Ping {
    fn drop(&mut self) {
        self.shared.fall_silent();
        self.shared.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn run(&self) {
        let mut due = Instant::now();
        while !self.is_over.load(Ordering::Relaxed) {
            {
                // Under the lock, so that nothing is sent behind the last one.
                let answered = self.answered.lock().unwrap();
                if Instant::now() >= due && !self.is_silent.load(Ordering::Relaxed) {
                    self.send_next(answered);
                    due = Instant::now() + INTERVAL;
                }
            }
            let left = due.saturating_duration_since(Instant::now());
            let left = left.clamp(Duration::from_millis(1), INTERVAL);
            self.echo.socket.set_read_timeout(Some(left)).unwrap();
            if let Some(number) = self.echo.receive() {
                self.answered.lock().unwrap()[number] = true;
            }
        }
    }

    fn send(&self) -> usize {
        self.send_next(self.answered.lock().unwrap())
    }

    fn send_next(&self, mut answered: std::sync::MutexGuard<'_, Vec<bool>>) -> usize {
        answered.push(false);
        self.echo.send(answered.len() - 1);
        answered.len() - 1
    }

    fn fall_silent(&self) {
        let _sending = self.answered.lock().unwrap();
        self.is_silent.store(true, Ordering::Relaxed);
    }

    /// The requests without an answer among the first `sent`.
    fn lost(&self, sent: usize) -> Vec<usize> {
        let answered = self.answered.lock().unwrap();
        let all = answered.iter().enumerate().take(sent);
        all.filter(|(_, answered)| !**answered).map(|(number, _)| number).collect()
    }
}

/// A ping over a change that answers under way may not outlive.
pub(crate) struct Change {
    ping: Ping,
    /// The requests that may be without an answer.
    during: Range<usize>,
}

impl Change {
    /// Every request before this moment is answered before the change begins.
    pub(crate) fn begin(ping: Ping) -> Change {
        let first = ping.settle();
        Change { ping, during: first..usize::MAX }
    }

    /// The change has been made: every request from now on must be answered.
    pub(crate) fn done(mut self) -> Change {
        self.during.end = self.ping.sent();
        self
    }

    /// Ends the ping. Gives how many requests there were.
    pub(crate) fn end(self) -> usize {
        let Change { ping, during } = self;
        poll("requests after the change", || (ping.sent() > during.end + 5).then_some(()));
        let (sent, lost) = ping.end_with_losses();
        let is_exact = lost.iter().all(|number| during.contains(number));
        assert!(is_exact, "without an answer: {lost:?} of {sent}; the change: {during:?}");
        sent
    }
}
