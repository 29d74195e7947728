//! CLAT by Tundra, configured by its manual page `tundra-nat64.conf(5)`.

use std::time::Duration;

use fordway_data::addresses::{CLAT_V6, ROUTER_V6};
use fordway_data::spec::Kind;

use super::{Availability, Context, Deployed, Mechanism};
use crate::error::{LabError, Result};
use crate::process::{Output, find_program, poll, run_str};

const PROGRAM: &str = "tundra-nat64";

/// The `tundra-nat64` program.
pub(super) struct Tundra;

/// `old`: before version 5, which took `program.chroot_dir` and had no `io.tun.multi_queue`. With two hops the application is behind
/// the CLAT's box.
fn config(old: bool, hops: u8) -> String {
    let (application, router) = super::tayga::clat_addresses(hops);
    let own = if old { "program.chroot_dir =\n" } else { "io.tun.multi_queue = no\n" };
    format!(
        "program.translator_threads =\n\
         program.privilege_drop_user =\n\
         program.privilege_drop_group =\n\
         {own}\
         io.mode = tun\n\
         io.tun.device_path =\n\
         io.tun.interface_name = clat0\n\
         io.tun.owner_user =\n\
         io.tun.owner_group =\n\
         router.ipv4 = {router}\n\
         router.ipv6 = {ROUTER_V6}\n\
         router.generated_packet_ttl = 255\n\
         addressing.mode = clat\n\
         addressing.nat64_clat.ipv4 = {application}\n\
         addressing.nat64_clat.ipv6 = {CLAT_V6}\n\
         addressing.nat64_clat_siit.prefix = 64:ff9b::\n\
         addressing.nat64_clat_siit.allow_translation_of_private_ips = yes\n\
         translator.ipv4.outbound_mtu = 1500\n\
         translator.ipv6.outbound_mtu = 1500\n\
         translator.6to4.copy_dscp_and_ecn = yes\n\
         translator.4to6.copy_dscp_and_ecn = yes\n"
    )
}

fn version() -> Option<String> {
    let out = run_str(&[PROGRAM, "--version"]).ok()?;
    let text = if out.stdout.trim().is_empty() { out.stderr } else { out.stdout };
    text.lines().map(str::trim).find(|l| !l.is_empty()).map(str::to_owned)
}

/// The first number of a version line.
fn major(version: &str) -> Option<u32> {
    version.split(|c: char| !c.is_ascii_digit()).find(|w| !w.is_empty())?.parse().ok()
}

impl Mechanism for Tundra {
    fn availability(&self, _kind: Kind) -> Availability {
        match find_program(PROGRAM) {
            Some(program) => Availability::Ready {
                version: version().unwrap_or_else(|| "Tundra (version unknown)".into()),
                program: Some(program),
            },
            None => Availability::Missing {
                hint: "build Tundra (vitlabuda/tundra-nat64) and put `tundra-nat64` on PATH".into(),
            },
        }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        // The number in "tundra-nat64" itself must not be taken for the version.
        let old = version()
            .map(|v| v.replace("nat64", "").replace("NAT64", ""))
            .and_then(|v| major(&v))
            .is_some_and(|v| v < 5);
        let config = config(old, context.spec.hops);
        let file =
            context.backend.deploy(&format!("{}-tundra.conf", context.name), config.as_bytes())?;
        let argv: Vec<String> =
            [PROGRAM, "-c", &file.display().to_string(), "translate"].map(str::to_owned).into();
        let log = context.logs.join(format!("{}-tundra.log", context.name));
        let mut daemon =
            context.backend.run(Some(&context.network.client), &argv, Output::Log(&log))?;
        // The device exists only once the program runs.
        let up = poll(Duration::from_secs(3), || {
            super::tayga::configure_tun(context).ok().or_else(|| (!daemon.alive()).then_some(()))
        })?;
        if up.is_none() || !daemon.alive() {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(LabError::NotReady {
                mechanism: context.spec.name.clone(),
                why: crate::process::last_lines(&said, 2),
            });
        }
        Ok(Deployed { daemon: Some(daemon), config, argv, ..Deployed::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_versions_get_their_own_keys() {
        assert!(config(true, 1).contains("program.chroot_dir"));
        assert!(!config(true, 1).contains("multi_queue"));
        assert!(config(false, 1).contains("io.tun.multi_queue = no"));
        assert!(config(false, 1).contains("nat64_clat.ipv4 = 192.0.0.1\n"));
        assert!(config(false, 2).contains("nat64_clat.ipv4 = 192.0.0.2\n"));
        assert!(config(false, 2).contains("router.ipv4 = 192.0.0.3\n"));
        assert_eq!(major("Tundra- 5.0.5"), Some(5));
    }
}
