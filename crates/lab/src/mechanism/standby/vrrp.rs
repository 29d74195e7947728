//! Addresses that move from a gateway that has died to its standby: keepalived in both boxes (VRRPv3, RFC 5798).

use std::time::Duration;

use fordway_data::addresses::{HOST_EDGE_V4, HOST_V4};
use fordway_data::spec::{Kind, MechanismSpec};

use crate::backend::{Backend, Place};
use crate::error::{LabError, Result};
use crate::mechanism::{Context, Deployed};
use crate::process::{self, Output};

/// The program, and Debian's package.
pub(super) const KEEPALIVED: &str = "keepalived";
/// Between two advertisements of the one that has the addresses; after three without any the other one takes them.
const ADVERTISED: Duration = Duration::from_millis(100);
/// How long the first one may take to have the addresses.
const ELECTED: Duration = Duration::from_secs(10);

/// Starts it in both boxes; the first one has the addresses when this is over.
pub(super) fn start(context: Context<'_>, boxes: [&Place; 2]) -> Result<Vec<Deployed>> {
    let mut all = Vec::new();
    for (number, place) in boxes.into_iter().enumerate() {
        all.push(one(context, place, number)?);
        if number == 0
            && process::poll(ELECTED, || has(context.backend, place).then_some(()))?.is_none()
        {
            return Err(LabError::NotReady {
                mechanism: context.spec.name.clone(),
                why: "keepalived does not take the addresses".into(),
            });
        }
    }
    Ok(all)
}

fn one(context: Context<'_>, place: &Place, number: usize) -> Result<Deployed> {
    let config = configuration(context.spec, number);
    let name = |what: &str| format!("{}-vrrp{number}{what}", context.name);
    let file = context.backend.deploy(&name(".conf"), config.as_bytes())?;
    let beside = |ending: &str| file.with_extension(ending).display().to_string();
    let (pid, of_vrrp) = (beside("pid"), beside("vrrp-pid"));
    let file = file.display().to_string();
    let argv = [
        KEEPALIVED,
        "--dont-fork",
        "--vrrp",
        "--log-console",
        "--use-file",
        &file,
        "--pid",
        &pid,
        "--vrrp_pid",
        &of_vrrp,
    ]
    .map(str::to_owned);
    let log = context.logs.join(name(".log"));
    let daemon = context.backend.run(Some(place), &argv, Output::Log(&log))?;
    Ok(Deployed { config, argv: argv.into(), daemon: Some(daemon), ..Deployed::default() })
}

/// What moves: the next hop of clients, and addresses of IPv4 beside it.
fn configuration(spec: &MechanismSpec, number: usize) -> String {
    let priority = [150, 100][number];
    let advertised = process::patience(ADVERTISED).as_secs_f64();
    let near = format!("{HOST_EDGE_V4}/30 dev to-client");
    let near = if spec.kind == Kind::Nat44 { near.as_str() } else { "" };
    format!(
        "global_defs {{\n  vrrp_version 3\n}}\n\
         vrrp_instance gateway {{\n  state BACKUP\n  interface to-client\n  virtual_router_id 64\n  priority {priority}\n  \
         advert_int {advertised}\n  nopreempt\n  virtual_ipaddress {{\n    fe80::1/64 dev to-client\n  }}\n  \
         virtual_ipaddress_excluded {{\n    {HOST_V4}/30 dev to-iperf\n    {near}\n  }}\n  \
         track_interface {{\n    to-client\n    to-iperf\n  }}\n}}\n"
    )
}

/// Whether a box has the addresses.
fn has(backend: &dyn Backend, place: &Place) -> bool {
    let argv = ["ip", "-4", "-o", "addr", "show", "dev", "to-iperf"].map(str::to_owned);
    let said = backend.run(Some(place), &argv, Output::Keep);
    let said = said.and_then(|running| running.wait(Duration::from_secs(2)));
    said.is_ok_and(|said| said.stdout.contains(HOST_V4))
}
