//! Routing daemons: FRR on routers, BIRD on gateways, with BGP and BFD between them.

use std::fs::{self, Permissions};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use fordway_testhost::bird::{self, BFD_INTERVAL};
use fordway_testhost::{poll, require};
use serde_json::Value;

use crate::common::daemon::RunDir;
use crate::common::netns::Netns;
use crate::common::process::Process;

const FRR: &str = "/usr/lib/frr";
/// The kernel's table of routes that are announced: the default of `route_table`.
const TABLE: u32 = 6146;

/// Whether FRR is installed, which has its daemons in a folder of their own.
pub(super) fn has_frr() -> bool {
    require(Path::new(FRR).join("bgpd").exists(), "frr is not installed")
}

/// A router's. It ends with it.
pub(super) struct Frr {
    folder: RunDir,
    _daemons: [Process; 3],
}

impl Frr {
    /// Starts one that takes routes from so many gateways. `own`: its address, by which it is asked. `lost`: packets of BFD in a row without which a gateway is gone.
    pub(super) fn start(host: &Netns, own: IpAddr, gateways: u16, lost: u32) -> Frr {
        // Its daemons give their privileges up, and have to get there.
        let folder = RunDir::in_memory();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let (family, id) = match own {
            IpAddr::V4(own) => ("ipv4", own),
            IpAddr::V6(_) => ("ipv6", v4(100)),
        };
        let neighbours = (1..=gateways).map(|number| match own {
            IpAddr::V4(_) => IpAddr::from(v4(number)),
            IpAddr::V6(_) => v6(number).into(),
        });
        let neighbours: Vec<IpAddr> = neighbours.collect();
        let of_each = |line: &str| -> String {
            neighbours.iter().map(|it| format!(" neighbor {it} {line}\n")).collect()
        };
        let bgp = format!(
            "router bgp 65000\n bgp router-id {id}\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n{}{}{} \
             address-family {family} unicast\n{}  maximum-paths 8\n exit-address-family\n",
            of_each("remote-as 65001"),
            of_each("passive"),
            of_each("bfd profile quick"),
            of_each("activate"),
        );
        let bfd = format!(
            "bfd\n profile quick\n  detect-multiplier {lost}\n  receive-interval {BFD_INTERVAL}\n  transmit-interval {BFD_INTERVAL}\n"
        );
        let start = |name: &str, text: &str| {
            let file = folder.file(&format!("{name}.conf"), text);
            fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
            let mut command = host.command(Path::new(FRR).join(name));
            command.arg("-f").arg(file).args(["-P", "0", "--log", "stdout", "-z"]);
            command.arg(folder.path().join("zserv")).arg("--vty_socket").arg(folder.path());
            command.arg("-i").arg(folder.path().join(format!("{name}.pid")));
            if name == "bfdd" {
                command.arg("--bfdctl").arg(folder.path().join("bfdd.control"));
            }
            let daemon = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
            // Each has to find those that it talks to.
            let socket = folder.path().join(format!("{name}.vty"));
            poll(&format!("{name} is ready"), || socket.exists().then_some(()));
            daemon
        };
        let daemons =
            [start("zebra", "hostname router\n"), start("bfdd", &bfd), start("bgpd", &bgp)];
        Frr { folder, _daemons: daemons }
    }

    /// How many gateways BFD has found alive.
    pub(super) fn alive(&self, host: &Netns) -> usize {
        let mut ask = host.command("vtysh");
        ask.arg("--vty_socket").arg(self.folder.path()).args(["-c", "show bfd peers json"]);
        let said: Value = serde_json::from_slice(&ask.output().unwrap().stdout).unwrap_or_default();
        let peers = said.as_array().map_or(&[][..], Vec::as_slice);
        peers.iter().filter(|peer| peer["status"] == "up").count()
    }
}

/// Starts a gateway's BIRD, which tells routes of each family to the router on that side.
pub(super) fn start_bird(host: &Netns, folder: &RunDir, number: u16, lost: u32) -> Process {
    let text = format!(
        "router id {};\n{}{}{}",
        v4(number),
        bird::common(lost),
        bird::gateway(v4(number).into(), v4(101).into(), TABLE),
        bird::gateway(v6(number).into(), v6(0x100).into(), TABLE),
    );
    let file = folder.file("bird.conf", &text);
    let mut command = host.command("bird");
    command.arg("-f").arg("-c").arg(file).arg("-s").arg(folder.path().join("bird.control"));
    Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// An address on the segment.
fn v4(number: u16) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, number as u8)
}

/// The same.
fn v6(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 0, number)
}
