//! The client half: AAAA questions at a steady rate whatever comes back, or as many as a number of
//! questions under way allows. Each reply has its own time limit and must be the one right answer.

use std::cell::OnceCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::message::{AAAA, Name, QUESTION, Sort, id, is_right, question};
use super::sockets::{BATCH, Sockets};
use crate::echo::rounded;

/// The sender looks at its schedule this often at most, so that the processor is left to others meanwhile.
const TICK: Duration = Duration::from_micros(100);
/// The longest wait for a reply before the clock is looked at again.
const LOOK: Duration = Duration::from_millis(5);
/// Series of the names that are in the server's cache.
const KNOWN: u16 = 0;
/// Leading bits of a time that a histogram keeps: 6 are 1.6 %.
const PRECISION: u32 = 6;

/// What to ask, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Series of the names that nobody has asked for before; 1 or more.
    pub series: u16,
    /// Questions at most.
    pub count: u32,
    /// Questions per second, whatever comes back; 0: as many as `window` allows.
    pub rate: f64,
    /// Questions under way, when there is no rate.
    pub window: u32,
    /// No more questions are sent after this many seconds.
    pub limit_s: f64,
    /// A reply later than this is lost, in seconds.
    pub patience_s: f64,
    /// Of a hundred questions, those for names that are in the cache.
    pub cached: u8,
    /// Of a hundred names, those with an AAAA record of their own.
    pub native: u8,
    /// How many names are in the cache: numbers from 0 on.
    pub known: u32,
}

impl Order {
    /// The name of a question.
    fn name(&self, index: u32) -> Name {
        // Both shares are spread evenly: 61 and 37 have no factor in common with 100.
        let spread = |number: u32, by: u32| u64::from(number) * u64::from(by) % 100;
        let cached = self.known > 0 && spread(index, 61) < u64::from(self.cached);
        let number = if cached { index % self.known } else { index };
        let native = spread(number, 37) < u64::from(self.native);
        let sort = if native { Sort::Both } else { Sort::OnlyA };
        Name { sort, series: if cached { KNOWN } else { self.series }, number }
    }

    /// The order that makes the names known of which this one is about, by asking for each so many times.
    pub fn warming(&self, rounds: u32) -> Self {
        Self {
            count: self.known.saturating_mul(rounds),
            rate: 0.0,
            window: 32,
            limit_s: 60.0,
            patience_s: self.patience_s.max(2.0),
            cached: 100,
            ..*self
        }
    }
}

/// What came back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// Questions that were due.
    pub sent: u64,
    /// Of them, those with the right answer in time.
    pub right: u64,
    /// Those with a reply that is not the right answer.
    pub wrong: u64,
    /// Those with a reply after their time, or none.
    pub late: u64,
    /// Right answers that arrived while questions were sent.
    pub meanwhile: u64,
    /// Time from the first question to the last.
    pub seconds: f64,
    /// Time from the first question until no more answers were waited for.
    pub elapsed_s: f64,
    /// Processor time of the client.
    pub cpu_s: f64,
    /// How far the sender fell behind its own schedule at worst; 0 without a rate.
    pub worst_lag_us: f64,
    /// Times to the right answers in ns, and how often each came; in ascending order.
    pub histogram: Vec<(u64, u64)>,
}

/// A question under way.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// Index of the question plus one; 0 when there is none.
    open: u32,
    id: u16,
    /// When it was due, in ns from the start.
    due: u64,
}

/// A client with its sockets.
#[derive(Debug)]
pub struct Client {
    sockets: Sockets,
    prefix: [u8; 12],
    next_id: Vec<u16>,
}

impl Client {
    /// Opens sockets to a server that is to synthesise with this prefix.
    pub fn open(target: SocketAddr, sockets: usize, prefix: [u8; 12]) -> std::io::Result<Self> {
        let next_id = (0..sockets).map(|_| rand::random()).collect();
        Ok(Self { sockets: Sockets::open(target, sockets)?, prefix, next_id })
    }

    /// Does what is ordered line by line, until the orders end. Says `ready` first.
    pub fn serve(&mut self, orders: impl BufRead, mut out: impl Write) -> std::io::Result<()> {
        writeln!(out, "ready")?;
        out.flush()?;
        for line in orders.lines() {
            let order: Order = serde_json::from_str(&line?)?;
            writeln!(out, "{}", serde_json::to_string(&self.run(&order)?)?)?;
            out.flush()?;
        }
        Ok(())
    }

    /// Asks.
    pub fn run(&mut self, order: &Order) -> std::io::Result<Answered> {
        let start = OnceCell::new();
        self.run_by(order, &|| start.get_or_init(Instant::now).elapsed())
    }

    /// Asks by this clock, which begins to run when it is first read.
    fn run_by(&mut self, order: &Order, clock: &dyn Fn() -> Duration) -> std::io::Result<Answered> {
        let mut run = Run::new(order, self.prefix, self.sockets.count(), clock);
        let cpu = crate::own_cpu();
        let limit = Duration::from_secs_f64(order.limit_s);
        let patience = Duration::from_secs_f64(order.patience_s);
        let mut turn = 0;
        let mut last_sent = Duration::ZERO;
        loop {
            let now = clock();
            run.give_up(now, patience);
            let sending = run.next < order.count && now < limit;
            if sending {
                let owed = run.owed(now);
                if owed > 0 {
                    turn = (turn + 1) % self.sockets.count();
                    run.send(&self.sockets, turn, &mut self.next_id[turn], owed, now);
                    last_sent = clock();
                }
            } else if run.outstanding == 0 {
                break;
            }
            let wait = if sending { run.wait(clock()) } else { LOOK };
            self.sockets.wait(wait, |socket, reply| run.take(socket, reply, sending))?;
        }
        let answered = run.finish(last_sent);
        Ok(Answered { cpu_s: crate::own_cpu() - cpu, ..answered })
    }
}

/// One order on its way.
struct Run<'a> {
    order: &'a Order,
    prefix: [u8; 12],
    /// Time since the order began.
    clock: &'a dyn Fn() -> Duration,
    next: u32,
    outstanding: u32,
    slots: Vec<Vec<Slot>>,
    /// Questions in the order in which they were due: socket, identifier, index.
    queue: VecDeque<(u16, u16, u32, u64)>,
    answered: Answered,
    times: BTreeMap<u64, u64>,
    worst_lag: Duration,
}

impl<'a> Run<'a> {
    fn new(
        order: &'a Order,
        prefix: [u8; 12],
        sockets: usize,
        clock: &'a dyn Fn() -> Duration,
    ) -> Self {
        // Room for all that may be under way at a socket, twice over: a place that is taken again
        // before its question's time is up would lose an answer.
        let most = if order.rate > 0.0 {
            (order.rate * order.patience_s) as usize
        } else {
            order.window as usize * 16
        };
        let room = (2 * most / sockets.max(1)).next_power_of_two().clamp(1024, 65_536);
        Self {
            order,
            prefix,
            clock,
            next: 0,
            outstanding: 0,
            slots: vec![vec![Slot::default(); room]; sockets],
            queue: VecDeque::new(),
            answered: Answered::default(),
            times: BTreeMap::new(),
            worst_lag: Duration::ZERO,
        }
    }

    /// When a question is due.
    fn due(&self, index: u32) -> Duration {
        Duration::from_secs_f64(f64::from(index) / self.order.rate)
    }

    /// Questions that may be sent now.
    fn owed(&self, now: Duration) -> u32 {
        let left = self.order.count - self.next;
        let owed = if self.order.rate > 0.0 {
            let due = (now.as_secs_f64() * self.order.rate) as u64 + 1;
            u32::try_from(due).unwrap_or(u32::MAX).saturating_sub(self.next)
        } else {
            self.order.window.saturating_sub(self.outstanding)
        };
        owed.min(left).min(BATCH as u32)
    }

    /// How long there is nothing to send.
    fn wait(&self, now: Duration) -> Duration {
        if self.order.rate <= 0.0 {
            return if self.outstanding < self.order.window { Duration::ZERO } else { LOOK };
        }
        match self.due(self.next).saturating_sub(now) {
            Duration::ZERO => Duration::ZERO,
            wait => wait.clamp(TICK, LOOK),
        }
    }

    fn send(&mut self, to: &Sockets, turn: usize, next_id: &mut u16, owed: u32, now: Duration) {
        let mut messages = [[0; QUESTION]; BATCH];
        for message in &mut messages[..owed as usize] {
            let (index, id) = (self.next, *next_id);
            let due = if self.order.rate > 0.0 { self.due(index) } else { now };
            self.worst_lag = self.worst_lag.max(now.saturating_sub(due));
            *message = question(id, self.order.name(index), AAAA);
            let due = due.as_nanos() as u64;
            let room = self.slots[turn].len();
            let slot = &mut self.slots[turn][usize::from(id) % room];
            if slot.open != 0 {
                // Its place is taken: whoever was here is long overdue.
                self.outstanding -= 1;
                self.answered.late += 1;
            }
            *slot = Slot { open: index + 1, id, due };
            self.queue.push_back((turn as u16, id, index, due));
            self.outstanding += 1;
            self.next += 1;
            *next_id = next_id.wrapping_add(1);
        }
        // What the kernel did not take gets no answer: it counts as late in its time.
        to.send(turn, &messages[..owed as usize]);
    }

    /// Counts questions whose time is up as late.
    fn give_up(&mut self, now: Duration, patience: Duration) {
        let now = now.as_nanos() as u64;
        while let Some((socket, id, index, due)) = self.queue.front().copied() {
            let slots = &mut self.slots[usize::from(socket)];
            let room = slots.len();
            let slot = &mut slots[usize::from(id) % room];
            if slot.open == index + 1 {
                if now <= due + patience.as_nanos() as u64 {
                    return;
                }
                slot.open = 0;
                self.outstanding -= 1;
                self.answered.late += 1;
            }
            self.queue.pop_front();
        }
    }

    fn take(&mut self, socket: usize, reply: &[u8], sending: bool) {
        let Some(id) = id(reply) else { return };
        let slots = &mut self.slots[socket];
        let room = slots.len();
        let slot = &mut slots[usize::from(id) % room];
        // The second answer to one question is no second answer.
        if slot.open == 0 || slot.id != id {
            return;
        }
        let index = slot.open - 1;
        let took = ((self.clock)().as_nanos() as u64).saturating_sub(slot.due);
        slot.open = 0;
        self.outstanding -= 1;
        if took as f64 > self.order.patience_s * 1e9 {
            self.answered.late += 1;
        } else if is_right(reply, self.order.name(index), self.prefix) {
            self.answered.right += 1;
            self.answered.meanwhile += u64::from(sending);
            *self.times.entry(rounded(took, PRECISION)).or_default() += 1;
        } else {
            self.answered.wrong += 1;
        }
    }

    fn finish(self, last_sent: Duration) -> Answered {
        let open_loop = self.order.rate > 0.0;
        Answered {
            sent: self.next.into(),
            seconds: last_sent.as_secs_f64(),
            elapsed_s: (self.clock)().as_secs_f64(),
            worst_lag_us: if open_loop { self.worst_lag.as_secs_f64() * 1e6 } else { 0.0 },
            histogram: self.times.into_iter().collect(),
            ..self.answered
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::UdpSocket;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::message::{LONGEST, Server, answer};
    use super::*;

    fn order() -> Order {
        Order {
            series: 1,
            count: 200,
            rate: 2000.0,
            // More than the questions that stay without an answer: the rest is asked all the same.
            window: 64,
            limit_s: 5.0,
            patience_s: 0.4,
            cached: 0,
            native: 100,
            known: 0,
        }
    }

    /// When the last question of [`order`] is due, and some time more.
    const ALL_DUE: Duration = Duration::from_millis(150);

    /// Readings of the clock in which the client takes what has arrived: one per answer, and some more.
    const READINGS: u32 = 500;

    /// A server that gives each question so many answers, and ends after so many questions. The client's clock stands
    /// still at [`ALL_DUE`], before any question is late, until the server has sent its last answer and the client had
    /// the time to take it; then everything else is late at once.
    fn against(order: &Order, copies: impl Fn(u64) -> u32 + Send + 'static) -> Answered {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = server.local_addr().unwrap();
        server.set_read_timeout(Some(fordway_testhost::PATIENCE)).unwrap();
        let count = u64::from(order.count);
        let all_sent = Arc::new(AtomicBool::new(false));
        let sent = Arc::clone(&all_sent);
        let thread = std::thread::spawn(move || {
            let (mut buffer, mut reply) = ([0; 512], [0; LONGEST]);
            for number in 0..count {
                let (length, from) = server.recv_from(&mut buffer).unwrap();
                let told = answer(&buffer[..length], Server::default(), &mut reply).unwrap().0;
                for _ in 0..copies(number) {
                    server.send_to(&reply[..told], from).unwrap();
                }
            }
            sent.store(true, Ordering::SeqCst);
        });
        let (now, after) = (Cell::new(Duration::ZERO), Cell::new(0));
        let clock = || {
            if all_sent.load(Ordering::SeqCst) {
                after.set(after.get() + 1);
            }
            let step = Duration::from_micros(500);
            now.set(match after.get() {
                0..READINGS => (now.get() + step).min(ALL_DUE),
                _ => now.get() + Duration::from_secs(1),
            });
            now.get()
        };
        let mut client = Client::open(target, 4, [0; 12]).unwrap();
        let answered = client.run_by(order, &clock).unwrap();
        thread.join().unwrap();
        answered
    }

    #[test]
    fn every_answer_counts_once_and_missing_ones_are_late() {
        let copies = |number| match number % 10 {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        for rate in [2000.0, 0.0] {
            let answered = against(&Order { rate, ..order() }, copies);
            assert_eq!((answered.sent, answered.right, answered.late), (200, 180, 20));
            assert_eq!(answered.histogram.iter().map(|h| h.1).sum::<u64>(), 180);
            assert!(answered.elapsed_s >= answered.seconds);
        }
    }

    #[test]
    fn an_answer_without_the_right_address_is_wrong() {
        // Nobody synthesises here, so names without an AAAA record have none.
        let half = Order { native: 50, ..order() };
        let answered = against(&half, |_| 1);
        assert_eq!((answered.right, answered.wrong, answered.late), (100, 100, 0));
    }

    #[test]
    fn shares_are_kept_and_known_names_come_again() {
        let order = Order { cached: 40, native: 20, known: 50, count: 1000, ..order() };
        let names: Vec<Name> = (0..1000).map(|index| order.name(index)).collect();
        let known = names.iter().filter(|name| name.series == KNOWN).count();
        assert_eq!(known, 400);
        assert!(names.iter().filter(|n| n.series == KNOWN).all(|n| n.number < 50));
        let native = names.iter().filter(|name| name.sort == Sort::Both).count();
        assert!((180..=220).contains(&native), "{native}");
        // What makes them known asks for each of them, with the same records.
        let warming = order.warming(2);
        assert_eq!(warming.count, 100);
        let warm: Vec<Name> = (0..50).map(|index| warming.name(index)).collect();
        assert!(names.iter().filter(|n| n.series == KNOWN).all(|n| warm.contains(n)));
        // Names that are not known never come again.
        let mut fresh: Vec<u32> =
            names.iter().filter(|n| n.series == 1).map(|n| n.number).collect();
        fresh.dedup();
        assert_eq!(fresh.len(), 600);
    }

    #[test]
    fn orders_are_read_line_by_line() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = server.local_addr().unwrap();
        let few = Order { count: 3, patience_s: 0.01, ..order() };
        let line = serde_json::to_string(&few).unwrap() + "\n";
        let mut out = Vec::new();
        let mut client = Client::open(target, 1, [0; 12]).unwrap();
        client.serve(line.as_bytes(), &mut out).unwrap();
        let said = String::from_utf8(out).unwrap();
        let answered: Answered = serde_json::from_str(said.lines().nth(1).unwrap()).unwrap();
        assert!(said.starts_with("ready\n"));
        assert_eq!((answered.sent, answered.late), (3, 3));
    }
}
