//! Offloads: what the kernel may leave undone in packets it hands over.

use std::fmt;
use std::io;

use crate::sys;

bitflags::bitflags! {
    /// Work on packets that the reader of a queue takes over from the kernel.
    ///
    /// This concerns what is *read*. Super-packets and partial checksums may always be *written*.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Offloads: u32 {
        /// Partial transport checksums.
        const CSUM = sys::TUN_F_CSUM;
        /// TCP super-packets over IPv4.
        const TSO4 = sys::TUN_F_TSO4;
        /// TCP super-packets over IPv6.
        const TSO6 = sys::TUN_F_TSO6;
        /// TCP super-packets whose first segment carries CWR.
        const TSO_ECN = sys::TUN_F_TSO_ECN;
        /// UDP super-packets over IPv4 (Linux 6.2).
        const USO4 = sys::TUN_F_USO4;
        /// UDP super-packets over IPv6 (Linux 6.2).
        const USO6 = sys::TUN_F_USO6;
    }
}

impl Offloads {
    const TSO: Self = Self::TSO4.union(Self::TSO6);
    const USO: Self = Self::USO4.union(Self::USO6);

    /// Adds what the kernel demands beside each offload: segmentation needs partial checksums, ECN needs TSO, and UDP
    /// offload comes in both versions or not at all.
    fn closed(mut self) -> Self {
        if self.intersects(Self::USO) {
            self |= Self::USO;
        }
        if !self.intersects(Self::TSO) {
            self -= Self::TSO_ECN;
        }
        if !self.is_empty() {
            self |= Self::CSUM;
        }
        self
    }
}

impl fmt::Display for Offloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(Offloads, &str); 6] = [
            (Offloads::CSUM, "checksum"),
            (Offloads::TSO4, "tso4"),
            (Offloads::TSO6, "tso6"),
            (Offloads::TSO_ECN, "tso-ecn"),
            (Offloads::USO4, "uso4"),
            (Offloads::USO6, "uso6"),
        ];
        let mut names = NAMES.iter().filter(|(flag, _)| self.contains(*flag));
        let Some((_, first)) = names.next() else {
            return f.write_str("none");
        };
        f.write_str(first)?;
        names.try_for_each(|(_, name)| write!(f, ", {name}"))
    }
}

/// What was asked for and what the kernel granted.
///
/// Displays as one phrase for a log line, for instance `checksum, tso4, tso6, tso-ecn (refused by the kernel: uso4,
/// uso6)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadReport {
    /// What was asked for, with what it implies.
    pub requested: Offloads,
    /// What packets read from now on may need.
    pub granted: Offloads,
}

impl OffloadReport {
    /// What the kernel refused.
    #[must_use]
    pub fn refused(&self) -> Offloads {
        self.requested - self.granted
    }
}

impl fmt::Display for OffloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.granted)?;
        if self.refused().is_empty() {
            return Ok(());
        }
        write!(f, " (refused by the kernel: {})", self.refused())
    }
}

/// Asks for `wanted` by `set`, and for ever less as long as the kernel refuses: without UDP segmentation, without ECN,
/// without TCP segmentation, nothing.
///
/// `EINVAL` is the kernel's refusal; every other error ends the attempt.
pub(crate) fn negotiate(
    wanted: Offloads,
    mut set: impl FnMut(Offloads) -> io::Result<()>,
) -> io::Result<OffloadReport> {
    let requested = wanted.closed();
    let without_uso = requested - Offloads::USO;
    let without_ecn = without_uso - Offloads::TSO_ECN;
    let without_tso = without_ecn - Offloads::TSO;
    let mut refused = None;
    for granted in [requested, without_uso, without_ecn, without_tso, Offloads::empty()] {
        if refused == Some(granted) {
            continue;
        }
        match set(granted) {
            Ok(()) => return Ok(OffloadReport { requested, granted }),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && !granted.is_empty() => {
                refused = Some(granted);
            }
            Err(error) => return Err(error),
        }
    }
    // The last attempt, for nothing at all, either succeeded or returned.
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that knows `known` offloads and refuses all others.
    fn kernel(known: Offloads) -> impl Fn(Offloads) -> io::Result<()> {
        move |asked| {
            if known.contains(asked) {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(libc::EINVAL))
            }
        }
    }

    #[test]
    fn everything_is_granted_by_a_new_kernel() {
        let report = negotiate(Offloads::all(), kernel(Offloads::all())).unwrap();
        assert_eq!(report.granted, Offloads::all());
        assert_eq!(report.to_string(), "checksum, tso4, tso6, tso-ecn, uso4, uso6");
    }

    #[test]
    fn each_step_drops_one_group() {
        let mut known = Offloads::all();
        for (dropped, text) in [
            (Offloads::USO, "checksum, tso4, tso6, tso-ecn (refused by the kernel: uso4, uso6)"),
            (
                Offloads::TSO_ECN,
                "checksum, tso4, tso6 (refused by the kernel: tso-ecn, uso4, uso6)",
            ),
            (Offloads::TSO, "checksum (refused by the kernel: tso4, tso6, tso-ecn, uso4, uso6)"),
            (
                Offloads::CSUM,
                "none (refused by the kernel: checksum, tso4, tso6, tso-ecn, uso4, uso6)",
            ),
        ] {
            known -= dropped;
            let report = negotiate(Offloads::all(), kernel(known)).unwrap();
            assert_eq!(report.granted, known);
            assert_eq!(report.to_string(), text);
        }
    }

    #[test]
    fn requests_are_completed() {
        let report = negotiate(Offloads::USO4, kernel(Offloads::all())).unwrap();
        assert_eq!(report.granted, Offloads::CSUM | Offloads::USO);
        let report = negotiate(Offloads::TSO_ECN, kernel(Offloads::all())).unwrap();
        assert_eq!(report.granted, Offloads::empty());
        assert_eq!(report.to_string(), "none");
    }

    #[test]
    fn other_errors_are_not_taken_for_a_refusal() {
        let error = negotiate(Offloads::all(), |_| Err(io::Error::from_raw_os_error(libc::EBADFD)))
            .unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADFD));
    }
}
