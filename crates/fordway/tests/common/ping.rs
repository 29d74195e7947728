//! A ping that goes on while something happens.

use std::process::{Child, Stdio};

use super::netns::Netns;
use super::poll;

/// Echo requests, 50 per second, until it is ended.
pub(crate) struct Ping {
    child: Child,
}

impl Ping {
    pub(crate) fn start(netns: &Netns, to: &str) -> Ping {
        let mut command = netns.command("ping");
        command.args(["-n", "-i", "0.02", "-W", "2", to]).stdout(Stdio::piped());
        Ping { child: command.spawn().unwrap() }
    }

    /// Ends it as Ctrl-C does. Gives what was sent and what came back.
    pub(crate) fn end(mut self) -> (u64, u64) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        poll("the ping ends", || self.child.try_wait().unwrap());
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.child.stdout.take().unwrap(), &mut text).unwrap();
        let summary = text.lines().find(|line| line.contains("packets transmitted"));
        let summary = summary.unwrap_or_else(|| panic!("{text}"));
        let mut numbers = summary.split_whitespace().filter_map(|word| word.parse().ok());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }
}

impl Drop for Ping {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
