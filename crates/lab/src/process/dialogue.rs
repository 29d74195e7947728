//! A child that takes orders on its standard input and answers each with a line.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Running, command, interrupted, last_lines, read_all};
use crate::error::{LabError, Result};

/// A running dialogue. Dropping it ends the child.
#[derive(Debug)]
pub(crate) struct Dialogue {
    // Dropped first: the end of its orders is the child's reason to end.
    orders: Option<Arc<Mutex<ChildStdin>>>,
    answers: Receiver<String>,
    first: String,
    running: Running,
}

/// Starts a command under the conditions of [`super::start`], and waits for its first line.
pub(super) fn start(argv: &[String], patience: Duration) -> Result<Dialogue> {
    let mut command = command(argv);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |source| LabError::Start { argv: argv.join(" "), source };
    let mut child = command.spawn().map_err(failed)?;
    let (tell, answers) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
    }
    let orders = child.stdin.take().map(|orders| Arc::new(Mutex::new(orders)));
    let stderr = child.stderr.take().map(read_all);
    let running = Running { argv: argv.to_vec(), child, held: None, stdout: None, stderr };
    let mut dialogue = Dialogue { orders, answers, first: String::new(), running };
    dialogue.first = dialogue.answer(patience, true)?;
    Ok(dialogue)
}

fn write_line(orders: &Mutex<ChildStdin>, order: &str) -> std::io::Result<()> {
    let mut orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
    // In one piece: another line may come in between two.
    orders.write_all(format!("{order}\n").as_bytes())?;
    orders.flush()
}

impl Dialogue {
    /// Gives an order and waits for its answer.
    pub(crate) fn ask(&mut self, order: &str, patience: Duration) -> Result<String> {
        self.tell(order)?;
        self.answer(patience, true)
    }

    /// The same without heed of an interruption: for tidying up after one.
    pub(crate) fn ask_anyway(&mut self, order: &str, patience: Duration) -> Result<String> {
        self.tell(order)?;
        self.answer(patience, false)
    }

    /// Gives an order, whose answer [`Dialogue::answer`] waits for.
    pub(crate) fn tell(&mut self, order: &str) -> Result<()> {
        let told = self.orders.as_ref().map(|orders| write_line(orders, order));
        // When the child has gone, what it said about it is worth more than "broken pipe".
        told.and_then(std::io::Result::ok).ok_or_else(|| self.gone())
    }

    /// Sends an empty line, which is no order, again and again for as long as the dialogue lasts: a child on
    /// another host tells by them that this end is still there.
    pub(crate) fn beat(&self, every: Duration) {
        let Some(orders) = self.orders.as_ref().map(Arc::downgrade) else { return };
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(every);
                let Some(orders) = orders.upgrade() else { return };
                if write_line(&orders, "").is_err() {
                    return;
                }
            }
        });
    }

    /// Ends the orders, and waits for the child to end of its own accord; whether it did.
    pub(crate) fn end(&mut self, patience: Duration) -> bool {
        self.orders = None;
        let deadline = Instant::now() + patience;
        while self.running.alive() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        !self.running.alive()
    }

    /// The next line; `heed` an interruption or not.
    pub(crate) fn answer(&mut self, patience: Duration, heed: bool) -> Result<String> {
        let deadline = Instant::now() + patience;
        loop {
            match self.answers.recv_timeout(Duration::from_millis(20)) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if heed && interrupted() {
                return Err(LabError::Interrupted);
            }
            if Instant::now() > deadline {
                let (argv, seconds) = (self.running.argv.join(" "), patience.as_secs());
                return Err(LabError::Timeout { argv, seconds });
            }
        }
    }

    /// Why the child answers no more.
    fn gone(&mut self) -> LabError {
        self.orders = None;
        self.running.stop();
        let status = self.running.child.wait().map(|s| s.to_string()).unwrap_or_default();
        let said = self.running.stderr.take().and_then(|h| h.join().ok()).unwrap_or_default();
        let argv = self.running.argv.join(" ");
        LabError::Command { argv, status, stderr: last_lines(&said, 2) }
    }

    /// The line that it began with.
    pub(crate) fn first(&self) -> String {
        self.first.clone()
    }

    /// The command line.
    pub(crate) fn argv(&self) -> &[String] {
        self.running.argv()
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        self.orders = None;
        self.running.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Dialogue> {
        let argv: Vec<String> = ["sh", "-c", script].map(str::to_owned).into();
        start(&argv, Duration::from_secs(10))
    }

    #[test]
    fn each_order_is_answered() {
        let mut dialogue = shell("echo ready; while read n; do echo $((n + 1)); done").unwrap();
        assert_eq!(dialogue.ask("1", Duration::from_secs(10)).unwrap(), "2");
        assert_eq!(dialogue.ask("41", Duration::from_secs(10)).unwrap(), "42");
    }

    #[test]
    fn what_a_child_says_before_it_goes_is_told() {
        let error = shell("echo 'no such device' >&2; exit 3").unwrap_err().to_string();
        assert!(error.contains("no such device"), "{error}");
        let mut dialogue = shell("echo ready; read n; echo 'out of memory' >&2; exit 1").unwrap();
        let error = dialogue.ask("x", Duration::from_secs(10)).unwrap_err().to_string();
        assert!(error.contains("out of memory"), "{error}");
    }
}
