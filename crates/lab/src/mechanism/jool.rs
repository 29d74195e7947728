//! CLAT by Jool (kernel module), in its own namespace: the application's is one hop away.

use super::{Availability, Context, Deployed, Mechanism};
use crate::backend::must;
use crate::error::Result;
use crate::process::{find_program, run_str};
use crate::topology::{CLAT_V6, PREF64, ROUTER_V4};

const INSTANCE: &str = "fordway-lab";

/// The `jool_siit` module and its command.
pub(super) struct Jool;

fn loaded() -> bool {
    std::path::Path::new("/sys/module/jool_siit").exists()
}

fn usable() -> bool {
    loaded() || run_str(&["modprobe", "--dry-run", "jool_siit"]).is_ok_and(|f| f.status.success())
}

impl Mechanism for Jool {
    fn availability(&self) -> Availability {
        let Some(program) = find_program("jool_siit") else {
            return Availability::Missing { hint: "apt-get install jool-tools jool-dkms".into() };
        };
        if !usable() {
            return Availability::Missing {
                hint: "the kernel has no module jool_siit: apt-get install jool-dkms \
                       linux-headers-$(uname -r), on a kernel that loads modules"
                    .into(),
            };
        }
        let version = run_str(&["jool_siit", "--version"]).map(|f| f.stdout).unwrap_or_default();
        Availability::Ready { version: format!("Jool {}", version.trim()), program: Some(program) }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        if !loaded() {
            run_str(&["modprobe", "jool_siit"])?.ok()?;
        }
        // The application holds 192.0.0.2 on its link to this box (see the topology).
        let commands: [&[&str]; 2] = [
            &["jool_siit", "instance", "add", INSTANCE, "--netfilter", "--pool6", PREF64],
            &["jool_siit", "-i", INSTANCE, "eamt", "add", ROUTER_V4, CLAT_V6],
        ];
        for argv in commands {
            must(context.backend, &context.network.client, argv)?;
        }
        let config: Vec<String> = commands.iter().map(|argv| argv.join(" ")).collect();
        let argv = commands[0].iter().map(ToString::to_string).collect();
        Ok(Deployed { config: config.join("\n"), argv, ..Deployed::default() })
    }
}
