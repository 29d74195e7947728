//! Processor time of this machine.

/// Processor time of the machine since boot, in ticks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// Neither idle nor taken away by a hypervisor.
    pub busy: u64,
    /// In programs.
    pub user: u64,
    /// In system calls.
    pub system: u64,
    /// In software interrupts.
    pub softirq: u64,
    /// Taken away by a hypervisor.
    pub steal: u64,
    /// All of it.
    pub total: u64,
}

impl Times {
    /// Reads /proc/stat; zeros where it cannot be read.
    pub fn now() -> Self {
        std::fs::read_to_string("/proc/stat").map(|t| Self::parse(&t)).unwrap_or_default()
    }

    /// Reads the line of all processors.
    pub fn parse(text: &str) -> Self {
        Self::parse_line(text, "cpu").unwrap_or_default()
    }

    fn parse_line(text: &str, name: &str) -> Option<Self> {
        let line = text.lines().find(|l| l.split(' ').next() == Some(name))?;
        // user nice system idle iowait irq softirq steal; guest time is part of user time.
        let f: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|v| v.parse().ok()).collect();
        let at = |i: usize| f.get(i).copied().unwrap_or(0);
        let total: u64 = f.iter().sum();
        Some(Self {
            busy: total - at(3) - at(4) - at(7),
            user: at(0) + at(1),
            system: at(2),
            softirq: at(6),
            steal: at(7),
            total,
        })
    }

    /// Ticks of all processors since `earlier`.
    pub fn total_since(&self, earlier: &Self) -> u64 {
        self.total.saturating_sub(earlier.total)
    }

    /// Share of the time since `earlier` that was busy, 0 to 1.
    pub fn busy_since(&self, earlier: &Self) -> f64 {
        let total = self.total_since(earlier).max(1);
        self.busy.saturating_sub(earlier.busy) as f64 / total as f64
    }
}

/// Time of one processor since boot.
pub fn processor_times(number: usize) -> Option<Times> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    Times::parse_line(&text, &format!("cpu{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_line_is_read_as_proc_5_says() {
        let t = Times::parse("cpu  10 1 20 100 5 2 7 3 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
        assert_eq!((t.busy, t.softirq, t.steal, t.total), (40, 7, 3, 148));
        assert_eq!((t.user, t.system), (11, 20));
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 5 0 5 10 0 0 0 0 0 0\n";
        let (one, none) = (Times::parse_line(text, "cpu1"), Times::parse_line(text, "cpu2"));
        assert_eq!(one.unwrap().busy_since(&Times::default()), 0.5);
        assert!(none.is_none());
    }
}
