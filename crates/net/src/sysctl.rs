//! Kernel settings below `/proc/sys/net`.
//!
//! They belong to the network namespace of the calling thread.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Name of a setting below `net`, such as `net/ipv4/conf/eth0.100/rp_filter`.
///
/// Kept in the form with slashes, in which dots of interface names are safe; parsing takes both forms, as sysctl(8)
/// does: with a slash before the first dot, slashes separate, else dots do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SysctlKey(String);

impl SysctlKey {
    /// Forwarding of IPv4 between all interfaces: `net.ipv4.ip_forward`.
    #[must_use]
    pub fn forwarding_v4() -> Self {
        Self("net/ipv4/ip_forward".to_owned())
    }

    /// Forwarding of IPv6 between all interfaces: `net.ipv6.conf.all.forwarding`.
    ///
    /// Switching it on makes the kernel drop the default routes it learned from router advertisements, except on
    /// interfaces whose `accept_ra` is 2: set that first where the way out is learned.
    #[must_use]
    pub fn forwarding_v6() -> Self {
        Self("net/ipv6/conf/all/forwarding".to_owned())
    }

    /// `field` of `net.ipv4.conf.DEVICE`; `device` may be `all` or `default`.
    ///
    /// # Errors
    ///
    /// [`Error::SysctlKey`] if device or field has a `/` or is empty.
    pub fn conf_v4(device: &str, field: &str) -> Result<Self> {
        Self::from_segments(&["net", "ipv4", "conf", device, field])
    }

    /// `field` of `net.ipv6.conf.DEVICE`; `device` may be `all` or `default`.
    ///
    /// # Errors
    ///
    /// [`Error::SysctlKey`] if device or field has a `/` or is empty.
    pub fn conf_v6(device: &str, field: &str) -> Result<Self> {
        Self::from_segments(&["net", "ipv6", "conf", device, field])
    }

    /// The interface that the setting belongs to, if it belongs to one.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        let mut segments = self.0.split('/').skip(2);
        match (segments.next(), segments.next()) {
            (Some("conf" | "neigh"), Some(device)) if !matches!(device, "all" | "default") => {
                Some(device)
            }
            _ => None,
        }
    }

    /// The same setting of another interface, if it belongs to one.
    pub(crate) fn on(&self, device: &str) -> Self {
        if self.device().is_none() {
            return self.clone();
        }
        let mut segments: Vec<&str> = self.0.split('/').collect();
        segments[3] = device;
        Self(segments.join("/"))
    }

    /// The interfaces' own settings that the kernel overwrites when this one is written: a folder below `net`, and
    /// their name in its interfaces' folders.
    pub(crate) fn overwrites(&self) -> Option<(&'static str, &'static str)> {
        const FIELDS_V6: [&str; 5] = [
            "forwarding",
            "disable_ipv6",
            "addr_gen_mode",
            "ignore_routes_with_linkdown",
            "disable_policy",
        ];
        if matches!(self.0.as_str(), "net/ipv4/ip_forward" | "net/ipv4/conf/all/forwarding") {
            return Some(("ipv4/conf", "forwarding"));
        }
        let field = self.0.strip_prefix("net/ipv6/conf/all/")?;
        let field = FIELDS_V6.into_iter().find(|it| *it == field)?;
        Some(("ipv6/conf", field))
    }

    fn from_segments(segments: &[&str]) -> Result<Self> {
        let bad = |segment: &&str| {
            segment.is_empty()
                || matches!(*segment, "." | "..")
                || segment.contains(['/', '\0', '\n'])
        };
        if segments.len() < 2 || segments[0] != "net" || segments.iter().any(bad) {
            return Err(Error::SysctlKey(segments.join("/")));
        }
        Ok(Self(segments.join("/")))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/proc/sys").join(&self.0)
    }
}

impl FromStr for SysctlKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let slashes = match (text.find('/'), text.find('.')) {
            (Some(slash), Some(dot)) => slash < dot,
            (slash, _) => slash.is_some(),
        };
        if slashes {
            return Self::from_segments(&text.split('/').collect::<Vec<_>>());
        }
        // In the form with dots, a slash stands for a dot of a name.
        let segments: Vec<_> = text.split('.').map(|part| part.replace('/', ".")).collect();
        Self::from_segments(&segments.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

impl TryFrom<String> for SysctlKey {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<SysctlKey> for String {
    fn from(key: SysctlKey) -> Self {
        key.0
    }
}

impl fmt::Display for SysctlKey {
    /// The form with dots, that sysctl(8) takes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let swap = |c| match c {
            '/' => '.',
            '.' => '/',
            c => c,
        };
        f.write_str(&self.0.chars().map(swap).collect::<String>())
    }
}

/// Reads a setting; several numbers are separated by one space.
///
/// # Errors
///
/// [`Error::Sysctl`], with `ENOENT` if the kernel has none of that name.
pub fn read(key: &SysctlKey) -> Result<String> {
    match fs::read_to_string(key.path()) {
        Ok(value) => Ok(normal(&value)),
        Err(source) => {
            Err(Error::Sysctl { operation: "read".to_owned(), key: key.to_string(), source })
        }
    }
}

/// Writes a setting.
///
/// # Errors
///
/// [`Error::Sysctl`], with `EACCES` or `EPERM` without CAP_NET_ADMIN, `EROFS` in many containers, `EINVAL` if the
/// kernel does not accept the value.
pub fn write(key: &SysctlKey, value: &str) -> Result<()> {
    // Opened without creating: a missing setting is ENOENT, not EACCES.
    let file = fs::OpenOptions::new().write(true).open(key.path());
    file.and_then(|mut file| std::io::Write::write_all(&mut file, value.as_bytes())).map_err(
        |source| Error::Sysctl {
            operation: format!("set to {value}:"),
            key: key.to_string(),
            source,
        },
    )
}

/// The value with single spaces, as [`read`] gives it.
pub(crate) fn normal(value: &str) -> String {
    value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_forms_mean_the_same() {
        let key = SysctlKey::conf_v4("eth0.100", "rp_filter").unwrap();
        assert_eq!(key.to_string(), "net.ipv4.conf.eth0/100.rp_filter");
        for text in ["net.ipv4.conf.eth0/100.rp_filter", "net/ipv4/conf/eth0.100/rp_filter"] {
            assert_eq!(text.parse::<SysctlKey>().unwrap(), key);
        }
        assert_eq!(key.device(), Some("eth0.100"));
        assert_eq!(SysctlKey::forwarding_v6().device(), None);
    }

    #[test]
    fn settings_that_overwrite_others_are_known() {
        let overwrites = |text: &str| text.parse::<SysctlKey>().unwrap().overwrites();
        assert_eq!(SysctlKey::forwarding_v4().overwrites(), Some(("ipv4/conf", "forwarding")));
        assert_eq!(
            overwrites("net.ipv6.conf.all.disable_ipv6"),
            Some(("ipv6/conf", "disable_ipv6"))
        );
        assert_eq!(overwrites("net.ipv6.conf.eth0.disable_ipv6"), None);
        assert_eq!(overwrites("net.ipv4.conf.all.rp_filter"), None);
    }

    proptest! {
        #[test]
        fn what_is_shown_parses_to_the_same(text in "net(/[a-z0-9._-]{1,6}){1,4}|net(\\.[a-z0-9/_-]{1,6}){1,4}") {
            if let Ok(key) = text.parse::<SysctlKey>() {
                prop_assert_eq!(key.to_string().parse::<SysctlKey>().unwrap(), key);
            }
        }

        #[test]
        fn no_text_leads_outside(text in ".{0,40}") {
            if let Ok(key) = text.parse::<SysctlKey>() {
                let path = key.path();
                prop_assert!(path.starts_with("/proc/sys/net"));
                prop_assert!(path.components().all(|part| part.as_os_str() != ".."));
            }
        }
    }

    #[test]
    fn keys_stay_below_net() {
        for bad in [
            "",
            "net",
            "kernel.hostname",
            "net/../kernel/hostname",
            "net..ipv4",
            "/net/ipv4/ip_forward",
            "net/ipv4/",
        ] {
            assert!(bad.parse::<SysctlKey>().is_err(), "{bad:?}");
        }
        assert!(SysctlKey::conf_v6("a/b", "forwarding").is_err());
        assert!(SysctlKey::conf_v6("..", "forwarding").is_err());
    }
}
