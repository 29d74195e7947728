//! Jool (kernel modules): CLAT by `jool_siit`, in its own namespace, where the application's is one hop
//! away; SIIT by `jool_siit` and stateful NAT64 by `jool` in the box in the middle.

use fordway_data::addresses::{
    CLAT_V6, NAT64_POOL6, POOL4, PREF64, ROUTER_V4, SERVER_V4, SERVER_V6, SIIT_POOL6,
};
use fordway_data::spec::Kind;

use super::{Availability, Context, Deployed, Forget, Mechanism, Memory};
use crate::backend::{Backend, Place, must};
use crate::error::Result;
use crate::host::memory;
use crate::process::{find_program, run_str};

/// An instance is one of its namespace.
pub(super) const INSTANCE: &str = "fordway-lab";
/// Ports of each address that sessions may have.
const PORTS: &str = "1024-65535";

/// The modules and their commands.
pub(super) struct Jool;

/// The command, which has the module's name.
fn program(kind: Kind) -> &'static str {
    if kind == Kind::Nat64 { "jool" } else { "jool_siit" }
}

fn loaded(module: &str) -> bool {
    std::path::Path::new("/sys/module").join(module).exists()
}

fn usable(module: &str) -> bool {
    loaded(module) || run_str(&["modprobe", "--dry-run", module]).is_ok_and(|f| f.status.success())
}

/// Sets an instance up in a place, and gives the first of its commands and all of them as text.
pub(super) fn add(
    backend: &dyn Backend,
    place: &Place,
    kind: Kind,
) -> Result<(Vec<String>, String)> {
    let module = program(kind);
    if !loaded(module) {
        run_str(&["modprobe", module])?.ok()?;
    }
    let commands = commands(kind);
    for argv in &commands {
        must(backend, place, argv)?;
    }
    let config: Vec<String> = commands.iter().map(|argv| argv.join(" ")).collect();
    let argv = commands[0].iter().map(ToString::to_string).collect();
    Ok((argv, config.join("\n")))
}

/// The commands that set an instance up.
fn commands(kind: Kind) -> Vec<Vec<&'static str>> {
    let program = program(kind);
    let pool6 = match kind {
        Kind::Nat64 => NAT64_POOL6,
        Kind::Siit => SIIT_POOL6,
        _ => PREF64,
    };
    let mut all = vec![vec![program, "instance", "add", INSTANCE, "--netfilter", "--pool6", pool6]];
    let mut map = |v4, v6| all.push(vec![program, "-i", INSTANCE, "eamt", "add", v4, v6]);
    match kind {
        Kind::Siit => map(SERVER_V4, SERVER_V6),
        // The application holds 192.0.0.2 on its link to this box (see the topology).
        Kind::Clat => map(ROUTER_V4, CLAT_V6),
        _ => {}
    }
    if kind == Kind::Nat64 {
        for protocol in ["--tcp", "--udp", "--icmp"] {
            all.push(vec![program, "-i", INSTANCE, "pool4", "add", protocol, POOL4, PORTS]);
        }
    }
    all
}

impl Mechanism for Jool {
    fn availability(&self, kind: Kind) -> Availability {
        let name = program(kind);
        let Some(path) = find_program(name) else {
            return Availability::Missing { hint: "apt-get install jool-tools jool-dkms".into() };
        };
        if !usable(name) {
            return Availability::Missing {
                hint: format!(
                    "the kernel has no module {name}: apt-get install jool-dkms \
                     linux-headers-$(uname -r), on a kernel that loads modules, or run --guest"
                ),
            };
        }
        let version = run_str(&[name, "--version"]).map(|f| f.stdout).unwrap_or_default();
        Availability::Ready { version: format!("Jool {}", version.trim()), program: Some(path) }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let place = context.network.translator(context.spec);
        let (argv, config) = add(context.backend, place, context.spec.kind)?;
        Ok(Deployed { config, argv, ..Deployed::default() })
    }

    fn forget<'a>(&self, context: Context<'a>) -> Forget<'a> {
        let argv = [program(context.spec.kind), "instance", "remove", INSTANCE];
        Forget::By(context.network.translator(context.spec), argv.map(str::to_owned).into())
    }

    fn memory(&self, _deployed: &Deployed) -> Option<Memory> {
        Some(Memory { growing: memory::slab()?, ..Memory::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_module_and_tables() {
        let words =
            |kind| commands(kind).iter().map(|c| c.join(" ")).collect::<Vec<_>>().join("\n");
        assert!(words(Kind::Clat).contains("jool_siit -i fordway-lab eamt add 192.0.0.2"));
        let nat64 = words(Kind::Nat64);
        assert!(nat64.contains("jool -i fordway-lab pool4 add --udp 203.0.113.64/26 1024-65535"));
        assert!(!nat64.contains("jool_siit"));
        let siit = words(Kind::Siit);
        assert!(siit.contains("--pool6 2001:db8:64::/96"));
        assert!(siit.contains("jool_siit -i fordway-lab eamt add 198.51.100.2 2001:db8:5::5"));
    }
}
