//! A Linux machine's own account of itself: /proc, here or at the other end of a command.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fordway_load::processors::Times;

use super::{AVAILABLE, CPU, FREE, IN, OUT, PROCESS, Reading, Source, rate};
use crate::error::{LabError, Result};
use crate::process::{Output, last_lines, start};

/// How long a command may take to show its files.
const PATIENCE: Duration = Duration::from_secs(10);

/// A machine's /proc.
#[derive(Debug)]
pub(crate) struct System {
    via: Vec<String>,
    processes: Vec<u32>,
    interface: Option<String>,
    before: Option<(Instant, Shown)>,
}

/// What the files say at one moment.
#[derive(Debug, Clone, Default)]
struct Shown {
    times: Times,
    processors: usize,
    /// Processor time of each watched process, in ticks.
    processes: BTreeMap<u32, u64>,
    total_kib: Option<u64>,
    free_kib: Option<u64>,
    available_kib: Option<u64>,
    /// Octets received and sent.
    interface: Option<(u64, u64)>,
}

impl System {
    /// `via` begins the command that shows the files, such as `ssh gateway`; empty: this machine.
    pub(crate) fn new(via: Vec<String>, processes: Vec<u32>, interface: Option<String>) -> Self {
        Self { via, processes, interface, before: None }
    }

    fn show(&self) -> Result<Shown> {
        let mut files: Vec<String> =
            ["/proc/stat", "/proc/meminfo", "/proc/net/dev"].map(str::to_owned).into();
        files.extend(self.processes.iter().map(|pid| format!("/proc/{pid}/stat")));
        if self.via.is_empty() {
            // A process may be gone; the first of the files is always there.
            let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap_or_default());
            return Ok(parse(&texts.collect::<String>(), self.interface.as_deref()));
        }
        let argv = [&self.via[..], &["cat".to_owned()], &files].concat();
        let shown = start(&argv, Output::Keep)?.wait(PATIENCE)?;
        // cat says 1 when one of the processes is gone.
        if !shown.stdout.contains("\ncpu0 ") {
            return Err(LabError::Command {
                argv: argv.join(" "),
                status: shown.status.to_string(),
                stderr: last_lines(&shown.stderr, 2),
            });
        }
        Ok(parse(&shown.stdout, self.interface.as_deref()))
    }
}

impl Source for System {
    fn read(&mut self) -> Result<Reading> {
        let (at, now) = (Instant::now(), self.show()?);
        let mut reading = Reading::default();
        let share = |part: Option<u64>| {
            let total =
                now.total_kib.filter(|total| *total > 0).ok_or("/proc/meminfo has no MemTotal")?;
            let part = part.ok_or("/proc/meminfo does not say")?;
            Ok(100.0 * part as f64 / total as f64)
        };
        reading.put(FREE, share(now.free_kib));
        reading.put(AVAILABLE, share(now.available_kib));
        if let Some((then, before)) = &self.before {
            let ticks = now.times.total_since(&before.times);
            let cpu = (ticks > 0).then(|| 100.0 * now.times.busy_since(&before.times));
            reading.put(CPU, cpu.ok_or_else(|| "the processors' clock stands still".into()));
            if !self.processes.is_empty() {
                reading.put(PROCESS, processes(before, &now, ticks));
            }
            if let Some(name) = &self.interface {
                let seconds = (at - *then).as_secs_f64();
                let of = |pick: fn(&(u64, u64)) -> u64| {
                    let none = || format!("there is no interface {name}");
                    let (old, new) = before.interface.zip(now.interface).ok_or_else(none)?;
                    Ok(rate(pick(&old), pick(&new), seconds)? * 8.0 / 1e6)
                };
                reading.put(IN, of(|octets| octets.0));
                reading.put(OUT, of(|octets| octets.1));
            }
        }
        self.before = Some((at, now));
        Ok(reading)
    }
}

/// Time of the watched processes, per cent of one processor; `ticks` are those of all processors.
fn processes(before: &Shown, now: &Shown, ticks: u64) -> std::result::Result<f64, String> {
    let both: Vec<(u64, u64)> = now
        .processes
        .iter()
        .filter_map(|(pid, after)| Some((*before.processes.get(pid)?, *after)))
        .collect();
    if both.is_empty() {
        return Err("no such process".into());
    }
    if ticks == 0 {
        return Err("the processors' clock stands still".into());
    }
    let used: u64 = both.iter().map(|(before, after)| after.saturating_sub(*before)).sum();
    Ok(100.0 * used as f64 * now.processors.max(1) as f64 / ticks as f64)
}

/// Reads the files, one after the other in one text.
fn parse(text: &str, interface: Option<&str>) -> Shown {
    let mut shown = Shown { times: Times::parse(text), ..Shown::default() };
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let number = |word: Option<&str>| word.and_then(|w| w.parse::<u64>().ok());
        match first {
            "MemTotal:" => shown.total_kib = number(words.next()),
            "MemFree:" => shown.free_kib = number(words.next()),
            "MemAvailable:" => shown.available_kib = number(words.next()),
            cpu if cpu.len() > 3 && cpu.starts_with("cpu") => shown.processors += 1,
            // PID (name) state ...: fields count from the last parenthesis, as the name may hold anything.
            pid if line[pid.len()..].starts_with(" (") => {
                let fields: Vec<&str> =
                    line.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
                let time = |at: usize| number(fields.get(at).copied());
                if let (Ok(pid), Some(user), Some(system)) = (pid.parse(), time(11), time(12)) {
                    shown.processes.insert(pid, user + system);
                }
            }
            _ => {
                if let Some((name, counters)) = line.split_once(':')
                    && Some(name.trim()) == interface
                {
                    let all: Vec<u64> =
                        counters.split_whitespace().filter_map(|w| w.parse().ok()).collect();
                    shown.interface = all.first().copied().zip(all.get(8).copied());
                }
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 5 0 5 40 0 0 0 0 0 0\ncpu1 5 0 5 40 0 0 0 0 0 0\n\
        ctxt 1\nMemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable:  400 kB\n\
        Inter-|   Receive\n face |bytes\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n\
        \x20 eth0: 1000 10 0 0 0 0 0 0 2000 20 0 0 0 0 0 0\n\
        42 (a (b) c) S 1 42 42 0 -1 0 0 0 0 0 7 3 0 0 20 0 1 0 5 0 0\n";

    #[test]
    fn the_files_are_read_from_one_text() {
        let shown = parse(BEFORE, Some("eth0"));
        assert_eq!((shown.processors, shown.interface), (2, Some((1000, 2000))));
        assert_eq!(shown.processes, BTreeMap::from([(42, 10)]));
        assert_eq!((shown.total_kib, shown.free_kib), (Some(1000), Some(100)));
        assert_eq!(shown.available_kib, Some(400));
        assert_eq!(parse("nothing: 1", Some("eth0")).interface, None);
    }

    #[test]
    fn shares_are_of_the_time_between_two_looks() {
        let text = BEFORE
            .replace("cpu  10 0 10 80", "cpu  50 0 30 220")
            .replace("7 3 0 0 20", "27 8 0 0 20");
        let (before, now) = (parse(BEFORE, None), parse(&text, None));
        let ticks = now.times.total_since(&before.times);
        assert_eq!((ticks, now.times.busy_since(&before.times)), (200, 0.3));
        // 25 of 100 ticks that one processor had.
        assert_eq!(processes(&before, &now, ticks), Ok(25.0));
        assert!(processes(&Shown::default(), &now, 10).is_err());
        assert!(processes(&before, &now, 0).is_err());
    }

    #[test]
    fn this_machine_is_read_directly_and_through_a_command() {
        for via in [Vec::new(), vec!["env".to_owned(), "LC_ALL=C".to_owned()]] {
            let mut own = System::new(via, vec![std::process::id()], Some("lo".into()));
            let first = own.read().unwrap();
            assert!(first.values[AVAILABLE] > 0.0 && !first.values.contains_key(CPU));
            let shown = own.show().unwrap();
            assert!(shown.processes.contains_key(&std::process::id()));
            assert!(shown.interface.is_some() && shown.processors >= 1);
            let second = own.read().unwrap();
            assert!(second.values.contains_key(CPU) || second.missing.contains_key(CPU));
        }
        let mut none = System::new(vec!["false".into()], Vec::new(), None);
        assert!(none.read().unwrap_err().to_string().contains("false cat /proc/stat"));
    }
}
