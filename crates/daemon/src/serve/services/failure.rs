//! Why a server does not start, in words for people.

use std::io::ErrorKind;
use std::net::SocketAddr;

use fordway_nameserver as dns64;
use fordway_proxy as proxy;
use fordway_relay as trt;
use fordway_router as router;

use crate::failure::Failure;

impl From<dns64::Error> for Failure {
    fn from(error: dns64::Error) -> Failure {
        let text = whole(&error);
        let hint = match &error {
            dns64::Error::Listen { address, source, .. } => {
                listen(*address, source.kind(), "[dns64]", "ss -lnup")
            }
            _ => None,
        };
        Failure::with(format!("[dns64]: {text}"), hint)
    }
}

impl From<router::Error> for Failure {
    fn from(error: router::Error) -> Failure {
        let denied = denied(&error);
        let hint = denied.then(|| {
            "run as root, or give it CAP_NET_RAW (and CAP_NET_BIND_SERVICE for dhcpv6)".to_owned()
        });
        Failure::with(format!("[[advertise]]: {}", whole(&error)), hint)
    }
}

impl From<trt::Error> for Failure {
    fn from(error: trt::Error) -> Failure {
        let denied = denied(&error);
        let hint = denied.then(|| {
            "run as root, or give it CAP_NET_ADMIN and CAP_NET_RAW; a daemon that has started without [[trt]] has \
             given them up: restart it"
                .to_owned()
        });
        Failure::with(whole(&error), hint)
    }
}

impl From<proxy::Error> for Failure {
    fn from(error: proxy::Error) -> Failure {
        let hint = match &error {
            proxy::Error::Listen { address, source } => {
                listen(*address, source.kind(), "[[proxy]]", "ss -lntp")
            }
            proxy::Error::Log { .. } => {
                Some("the folder must be there, and this user may write in it".to_owned())
            }
            _ => None,
        };
        Failure::with(format!("[[proxy]]: {}", whole(&error)), hint)
    }
}

/// An error with what lies behind it.
pub(super) fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(behind) = source {
        let behind_text = behind.to_string();
        // Some say it themselves.
        if !text.ends_with(&behind_text) {
            text += &format!(": {behind_text}");
        }
        source = behind.source();
    }
    text
}

/// Whether the system has refused it for want of a right.
fn denied(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(error) = at {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == ErrorKind::PermissionDenied) {
            return true;
        }
        at = error.source();
    }
    false
}

pub(super) fn listen(
    address: SocketAddr,
    kind: ErrorKind,
    section: &str,
    ss: &str,
) -> Option<String> {
    let port = address.port();
    match kind {
        ErrorKind::AddrInUse => {
            let who =
                if port == 53 { ", such as systemd-resolved, dnsmasq or unbound" } else { "" };
            Some(format!(
                "another program listens there{who} ({ss} 'sport = :{port}' shows which): end it, or \
                 choose another address or port in {section} listen"
            ))
        }
        ErrorKind::PermissionDenied if port < 1024 => Some(format!(
            "port {port} needs CAP_NET_BIND_SERVICE: run as root, or choose a port above 1023; a daemon \
             that has started without {section} has given it up: restart it"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn refused(kind: ErrorKind, address: &str) -> String {
        let source = io::Error::from(kind);
        let address = address.parse().unwrap();
        Failure::from(dns64::Error::Listen { address, transport: "UDP", source }).line()
    }

    #[test]
    fn whoever_is_in_the_way_or_what_is_missing_is_named() {
        let line = refused(ErrorKind::AddrInUse, "[::1]:53");
        assert!(line.contains("[::1]:53") && line.contains("ss -lnup 'sport = :53'"), "{line}");
        assert!(line.contains("systemd-resolved"), "{line}");
        let line = refused(ErrorKind::AddrInUse, "[::1]:5353");
        assert!(!line.contains("systemd-resolved"), "{line}");
        let line = refused(ErrorKind::PermissionDenied, "[::1]:53");
        assert!(line.contains("CAP_NET_BIND_SERVICE"), "{line}");
    }
}
