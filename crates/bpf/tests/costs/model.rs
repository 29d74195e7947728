//! A model of hosts with many processors, from what was measured on one.

/// Packets per second, in millions, of `processors` that each need `own_ns` for a packet and share `lines` cache lines with
/// packets at other processors.
///
/// A line that another processor wrote last has to come from there, which takes `line_ns`. If packets of a flow arrive at all
/// processors alike, that is so for all but one in `processors`. Lines of a flow wait for nothing else: there are many flows.
/// A line of all packets is written by one processor at a time, so that it limits the rate of all.
pub(crate) fn rate(processors: u32, own_ns: f64, lines: Lines, line_ns: f64) -> f64 {
    let processors = f64::from(processors);
    let elsewhere = 1.0 - 1.0 / processors;
    let each = own_ns + (lines.of_flow + lines.of_all) as f64 * elsewhere * line_ns;
    let sum = processors * 1000.0 / each;
    let most = 1000.0 / (lines.of_all as f64 * elsewhere * line_ns);
    sum.min(most)
}

/// Cache lines that a packet writes to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lines {
    pub(crate) of_flow: u64,
    pub(crate) of_all: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shared_grows_with_processors_and_what_all_share_does_not() {
        let none = Lines::default();
        assert_eq!(rate(1, 500.0, none, 100.0), 2.0);
        assert_eq!(rate(64, 500.0, none, 100.0), 128.0);
        let flow = Lines { of_flow: 1, of_all: 0 };
        assert_eq!(rate(1, 500.0, flow, 100.0), 2.0);
        // Half of the packets wait for the line: 550 ns each.
        assert!((rate(2, 500.0, flow, 100.0) - 2000.0 / 550.0).abs() < 1e-9);
        let all = Lines { of_flow: 0, of_all: 1 };
        assert_eq!(rate(1, 500.0, all, 100.0), 2.0);
        // 100 ns for each packet of any processor, but for one in 64.
        assert!((rate(64, 500.0, all, 100.0) - 10.0 * 64.0 / 63.0).abs() < 1e-9);
    }
}
