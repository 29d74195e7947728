//! CLAT by TAYGA, configured as in study A: one static map, the well-known prefix.

use std::time::Duration;

use super::{Availability, Context, Deployed, Mechanism, package_version};
use crate::backend::must;
use crate::error::Result;
use crate::process::{Output, find_program};
use crate::topology::{CLAT_V4, CLAT_V6, PREF64, ROUTER_V4, ROUTER_V6};

/// The `tayga` program.
pub(super) struct Tayga;

/// TAYGA before 0.9.3 does not know the option and does not hold 192.0.0.0/24 for non-global.
fn knows_wkpf_strict() -> bool {
    let Some(program) = find_program("tayga") else { return false };
    let bytes = std::fs::read(program).unwrap_or_default();
    bytes.windows(11).any(|w| w == b"wkpf-strict")
}

fn config(wkpf_strict: bool) -> String {
    let mut text = format!(
        "tun-device clat0\n\
         ipv4-addr {ROUTER_V4}\n\
         ipv6-addr {ROUTER_V6}\n\
         prefix {PREF64}\n\
         map {CLAT_V4} {CLAT_V6}\n"
    );
    if wkpf_strict {
        // RFC 6052 section 3.1 forbids the server's non-global address in the well-known prefix.
        text.push_str("wkpf-strict no\n");
    }
    text
}

impl Mechanism for Tayga {
    fn availability(&self) -> Availability {
        match find_program("tayga") {
            Some(program) => Availability::Ready {
                version: format!(
                    "TAYGA {}",
                    package_version("tayga").unwrap_or_else(|| "(not from a package)".into())
                ),
                program: Some(program),
            },
            None => Availability::Missing { hint: "apt-get install tayga".into() },
        }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let config = config(knows_wkpf_strict());
        let file =
            context.backend.deploy(&format!("{}-tayga.conf", context.name), config.as_bytes())?;
        let file = file.display().to_string();
        let client = &context.network.client;
        must(context.backend, client, &["tayga", "-c", &file, "--mktun"])?;
        configure_tun(context)?;
        let argv: Vec<String> = ["tayga", "-n", "-c", &file].map(str::to_owned).into();
        let log = context.logs.join(format!("{}-tayga.log", context.name));
        let daemon = context.backend.run(Some(client), &argv, Output::Log(&log))?;
        Ok(Deployed { daemon: Some(daemon), config, argv, ..Deployed::default() })
    }
}

/// Addresses and routes of a CLAT whose program only makes the device.
///
/// The IPv4 route knows that 20 octets are added on the way, as a careful operator sets it up.
pub(super) fn configure_tun(context: Context<'_>) -> Result<()> {
    let commands = [
        "link set clat0 up".to_owned(),
        format!("addr add {CLAT_V4}/32 dev clat0"),
        "route add default dev clat0 mtu 1480 advmss 1440".into(),
        format!("route add {CLAT_V6}/128 dev clat0"),
    ];
    let file = context
        .backend
        .deploy(&format!("{}-tun.ip", context.name), (commands.join("\n") + "\n").as_bytes())?;
    let argv = ["ip".to_owned(), "-batch".into(), file.display().to_string()];
    context
        .backend
        .run(Some(&context.network.client), &argv, Output::Keep)?
        .wait(Duration::from_secs(10))?
        .ok()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_written_only_for_versions_that_know_it() {
        assert!(config(true).ends_with("wkpf-strict no\n"));
        assert!(!config(false).contains("wkpf"));
        assert!(config(false).contains("map 192.0.0.1 2001:db8:1::c\n"));
    }
}
