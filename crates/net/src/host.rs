//! What the host offers, found out without changing anything.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use crate::{Result, SysctlKey, sysctl};

/// What the host and the calling thread's network namespace offer.
#[derive(Debug)]
pub struct Host {
    /// The running kernel.
    pub kernel: KernelVersion,
    /// Whether IPv6 can be used.
    pub ipv6: Ipv6State,
    /// Why /dev/net/tun cannot be opened, if it cannot.
    pub tun: std::result::Result<(), io::Error>,
}

impl Host {
    /// Looks at the host.
    #[must_use]
    pub fn probe() -> Self {
        Self {
            kernel: KernelVersion::running(),
            ipv6: Ipv6State::probe(),
            tun: open_tun().map(drop),
        }
    }
}

fn open_tun() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/net/tun")
}

/// Whether IPv6 can be used in a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6State {
    /// New interfaces get IPv6.
    Enabled,
    /// `net.ipv6.conf.all.disable_ipv6` or `default` is 1: IPv6 is off until
    /// it is switched on, at least for new interfaces.
    DisabledBySysctl,
    /// The kernel has no IPv6, or it was started with `ipv6.disable=1`.
    Absent,
}

impl Ipv6State {
    /// Looks at the calling thread's network namespace.
    #[must_use]
    pub fn probe() -> Self {
        if !Path::new("/proc/sys/net/ipv6/conf").exists() {
            return Self::Absent;
        }
        let disabled = |device| -> Result<bool> {
            Ok(sysctl::read(&SysctlKey::conf_v6(device, "disable_ipv6")?)? == "1")
        };
        if ["all", "default"].into_iter().any(|device| disabled(device).unwrap_or(false)) {
            return Self::DisabledBySysctl;
        }
        Self::Enabled
    }
}

/// Version of a Linux kernel. Compares by number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// The release as the kernel gives it, such as `6.1.0-18-amd64`.
    pub release: String,
}

impl KernelVersion {
    /// The running kernel's.
    #[must_use]
    pub fn running() -> Self {
        Self::parse(&rustix::system::uname().release().to_string_lossy())
    }

    /// Whether the kernel is `major.minor` or later.
    #[must_use]
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }

    fn parse(release: &str) -> Self {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut next = || numbers.next().and_then(|text| text.parse().ok());
        Self { major: next().unwrap_or(0), minor: next().unwrap_or(0), release: release.to_owned() }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.release)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        let old = KernelVersion::parse("5.15.0-91-generic");
        assert_eq!((old.major, old.minor), (5, 15));
        assert!(old.at_least(5, 15) && old.at_least(4, 20) && !old.at_least(6, 1));
        assert!(KernelVersion::parse("6.10-rc3").at_least(6, 6));
        assert!(!KernelVersion::parse("strange").at_least(1, 0));
        assert!(KernelVersion::running().at_least(4, 0));
    }
}
