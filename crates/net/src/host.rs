//! What the host offers, found out without changing anything.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use crate::{Result, SysctlKey, sysctl};

/// What the host and the calling thread's network namespace offer.
#[derive(Debug)]
pub struct Host {
    /// Whether IPv6 can be used.
    pub ipv6: Ipv6State,
    /// Why /dev/net/tun cannot be opened, if it cannot.
    pub tun: std::result::Result<(), io::Error>,
}

impl Host {
    /// Looks at the host.
    #[must_use]
    pub fn probe() -> Self {
        Self { ipv6: Ipv6State::probe(), tun: open_tun().map(drop) }
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
    /// `net.ipv6.conf.all.disable_ipv6` or `default` is 1: IPv6 is off until it is switched on, at least for new
    /// interfaces.
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
