//! A network namespace in which programs at XDP find ways in and out.
//!
//! ```text
//!   198.51.100.0/24, 2001:db8:1::/64 ──► in0, which stands for the translator's interface
//!   192.0.2.0/24, 2001:db8:64::/96   ──► out0, to which XDP may send
//! ```

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use fordway_daemon::failure::Failure;
use fordway_net::{Address, IpNet, NetNs, Netlink, Route, SysctlKey, sysctl};
use fordway_tun::{Device, OpenOptions, Queue};

/// Longer than any packet after its translation, in octets.
const MTU: u32 = 9000;

/// The devices; they vanish with it.
pub(super) struct Surroundings {
    ifindex: [u32; 2],
    _devices: [(Device, Vec<Queue>); 2],
}

impl Surroundings {
    /// Moves the calling thread into a namespace of its own and makes the devices there.
    pub(super) fn make(run_dir: &Path) -> Result<Surroundings, Failure> {
        NetNs::enter_new()?;
        let mut netlink = Netlink::open()?;
        netlink.set_up("lo", true)?;
        let mut device = |name: &str, nets: [&str; 2]| -> Result<_, Failure> {
            let options = OpenOptions { run_dir: run_dir.to_owned(), ..OpenOptions::default() };
            let opened = Device::open(name, &options)?;
            netlink.set_mtu(name, MTU)?;
            netlink.set_up(name, true)?;
            for net in nets {
                netlink.add_route(&Route::new(parse(net)?, name))?;
            }
            Ok(opened)
        };
        let inside = device("in0", ["198.51.100.0/24", "2001:db8:1::/64"])?;
        let outside = device("out0", ["192.0.2.0/24", "2001:db8:64::/96"])?;
        for address in ["203.0.113.1/32", "2001:db8:ffff::1/128"] {
            let no_dad = true;
            netlink.add_address(&Address { no_dad, ..Address::new("out0", parse(address)?) })?;
        }
        sysctl::write(&SysctlKey::forwarding_v4(), "1")?;
        sysctl::write(&SysctlKey::forwarding_v6(), "1")?;
        // Sending to an address creates its neighbour entry.
        for to in ["192.0.2.1", "2001:db8:64::c633:6401"] {
            greet(to).map_err(|error| Failure::failed(format!("cannot send to {to}: {error}")))?;
        }
        let ifindex = [inside.0.ifindex(), outside.0.ifindex()];
        Ok(Surroundings { ifindex, _devices: [inside, outside] })
    }

    /// The interface that stands for the translator's.
    pub(super) fn inside(&self) -> u32 {
        self.ifindex[0]
    }

    /// The device that XDP may send to.
    pub(super) fn outside(&self) -> u32 {
        self.ifindex[1]
    }
}

fn parse(net: &str) -> Result<IpNet, Failure> {
    net.parse().map_err(|_| Failure::failed(format!("{net} is no network")))
}

fn greet(to: &str) -> std::io::Result<()> {
    let to: IpAddr = to.parse().map_err(std::io::Error::other)?;
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(any)?.send_to(b"hello", (to, 9)).map(|_| ())
}
