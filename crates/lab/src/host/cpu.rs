//! Processor time: of the whole machine and of one process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fordway_data::trial::CpuUse;
use fordway_load::processors::Times;

/// Ticks per second of /proc/stat and /proc/PID/stat (`sysconf(_SC_CLK_TCK)`).
fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// The shortest look at what other programs do.
const LOOK: Duration = Duration::from_millis(500);

/// Watches how busy other programs keep this machine. Unlike the load average it does not remember what ended a minute
/// ago, such as the build that has just made the lab.
#[derive(Debug)]
pub(crate) struct Watch(Meter);

impl Watch {
    /// Begins.
    pub(crate) fn begin() -> Self {
        Self(Meter::start(&[]))
    }

    /// Cores that other programs kept busy since then, and for half a second at least.
    pub(crate) fn end(self) -> f64 {
        std::thread::sleep(LOOK.saturating_sub(self.0.at.elapsed()));
        self.0.stop().other_cores()
    }
}

/// Measures processor use between two moments.
#[derive(Debug)]
pub(crate) struct Meter {
    start: Times,
    at: Instant,
    processes: Vec<(u32, u64)>,
    own: u64,
}

impl Meter {
    /// Starts; `pids` are the mechanism's processes.
    pub(crate) fn start(pids: &[u32]) -> Self {
        let ticks = |pid: &u32| Some((*pid, process_ticks(*pid)?.0));
        let processes = pids.iter().filter_map(ticks).collect();
        let own = own_ticks(pids);
        Self { start: Times::now(), at: Instant::now(), processes, own }
    }

    /// Ends.
    pub(crate) fn stop(self) -> CpuUse {
        let end = Times::now();
        let total = (end.total - self.start.total).max(1) as f64;
        let seconds = self.at.elapsed().as_secs_f64();
        let in_seconds = |ticks: u64| ticks as f64 / ticks_per_second();
        let used = self.processes.iter().filter_map(|(pid, before)| {
            let (ticks, threads) = process_ticks(*pid)?;
            Some((in_seconds(ticks.saturating_sub(*before)), threads))
        });
        let after = used.reduce(|a, b| (a.0 + b.0, a.1 + b.1));
        let pids: Vec<u32> = self.processes.iter().map(|(pid, _)| *pid).collect();
        CpuUse {
            busy_share: (end.busy - self.start.busy) as f64 / total,
            softirq_share: (end.softirq - self.start.softirq) as f64 / total,
            steal_share: (end.steal - self.start.steal) as f64 / total,
            mechanism_cores: after.map(|a| a.0 / seconds),
            mechanism_threads: after.map(|a| a.1),
            busy_s: in_seconds(end.busy - self.start.busy),
            user_s: in_seconds(end.user - self.start.user),
            system_s: in_seconds(end.system - self.start.system),
            softirq_s: in_seconds(end.softirq - self.start.softirq),
            mechanism_s: after.map(|a| a.0),
            lab_cores: in_seconds(own_ticks(&pids).saturating_sub(self.own)) / seconds,
            seconds,
            of_two: false,
        }
    }
}

/// User and system time of a process with all its threads, in ticks, and the number of threads.
fn process_ticks(pid: u32) -> Option<(u64, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let at = |i: usize| fields.get(i)?.parse::<u64>().ok();
    Some((at(11)? + at(12)?, u32::try_from(at(17)?).ok()?))
}

/// User and system time of this process, of all that descend from it, and of `also`, in ticks. What has ended and was
/// waited for is part of its parent's, so that nothing is lost between two readings.
fn own_ticks(also: &[u32]) -> u64 {
    let numbers = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let all: BTreeMap<u32, (u32, u64)> =
        numbers.filter_map(|pid| Some((pid, parent_and_ticks(pid)?))).collect();
    let own = std::process::id();
    let is_own = |pid: u32| {
        let mut above = std::iter::successors(Some(pid), |pid| Some(all.get(pid)?.0));
        above.any(|pid| pid == own || also.contains(&pid))
    };
    all.iter().filter(|(pid, _)| is_own(**pid)).map(|(_, (_, ticks))| ticks).sum()
}

/// The parent of a process, and its user and system time with that of its children that have ended, in ticks.
fn parent_and_ticks(pid: u32) -> Option<(u32, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let at = |i: usize| fields.get(i)?.parse::<u64>().ok();
    Some((u32::try_from(at(1)?).ok()?, at(11)? + at(12)? + at(13)? + at(14)?))
}

/// Number of processors that the kernel schedules on.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Share of the machine's time since boot that the hypervisor took away.
pub(crate) fn steal_since_boot() -> f64 {
    let now = Times::now();
    now.steal as f64 / now.total.max(1) as f64
}

/// Load average of the last minute.
pub(crate) fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_run_and_that_ended_are_the_labs_own_work() {
        const BUSY: &str = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
        let sh = |text: &str| {
            let mut sh = std::process::Command::new("sh");
            sh.args(["-c", text]).stdin(std::process::Stdio::piped());
            sh
        };
        let (meter, before) = (Meter::start(&[]), own_ticks(&[]));
        assert!(sh(BUSY).status().unwrap().success());
        assert!(meter.stop().lab_cores > 0.0);
        let ended = own_ticks(&[]);
        assert!(ended > before);
        // A child of a child that goes on.
        let mut runs = sh(&format!("(sh -c '{BUSY}'; echo done; cat)"))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 5];
        std::io::Read::read_exact(runs.stdout.as_mut().unwrap(), &mut said).unwrap();
        assert!(own_ticks(&[]) > ended);
        drop(runs.stdin.take());
        assert!(runs.wait().unwrap().success());
    }

    #[test]
    fn own_process_has_threads_and_time() {
        let (_, threads) = process_ticks(std::process::id()).unwrap();
        assert!(threads >= 1);
    }
}
