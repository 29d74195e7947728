//! What comes out of a translator's interface and is routed back into it ends there.

use std::fs;
use std::sync::Arc;

use fordway_bpf::{Accelerator, Hook, Options, SoftwireMaps, Totals, Tunnels};
use fordway_softwire::{Role, Settings};
use fordway_testhost::{can_use_tun, poll};
use fordway_xlat::{DropReason, Offload};

use crate::wire::draw::{config, packet};
use crate::wire::{Folders, IPV4, apart, index, run, send_by, take_from};

/// Datagrams that the host, by its routes, sends back where they came from; each with more than one hop left.
const V4: &str = "v4 = { src = \"198.51.100.7\", dst = \"203.0.113.9\", tos = 3, ttl = 61 }\n\
                  udp = {}\npayload = 40";
const V6: &str = "v6 = { src = \"2001:db8:6::2\", dst = \"2001:db8:64::cb00:7109\", hop = 61 }\n\
                  udp = {}\npayload = 40";

#[test]
fn at_the_interface() {
    both_end(|_, tun| Hook::Interface { tun }, None);
}

#[test]
fn at_the_interface_behind_programs_in_front_of_routing() {
    both_end(|device, tun| Hook::Ingress { devices: vec![device], tun }, None);
}

#[test]
fn at_the_interface_of_a_translator_at_an_uplink() {
    both_end(|device, tun| Hook::Uplink { device, tun }, None);
}

#[test]
fn ipv6_alone_at_a_softwires_interface() {
    both_end(|_, tun| Hook::Interface { tun }, Some(Role::Tep));
    both_end(|device, tun| Hook::Uplink { device, tun }, Some(Role::Client));
}

/// Of softwires IPv4 passes: it comes out of one tunnel and enters another.
fn both_end(hook: fn(u32, u32) -> Hook, softwire: Option<Role>) {
    if !can_use_tun() {
        return;
    }
    apart(|| {
        let folders = Folders::new();
        let (_device, mut queue) = folders.tun("fw0", 1500);
        run("ip link add up0 type veth peer name far");
        run("ip link set up0 up");
        run("ip link set lo up");
        for family in ["ipv4", "ipv6"] {
            run(&format!("sysctl -qw net.{family}.conf.all.forwarding=1"));
        }
        run("ip route add 203.0.113.0/24 dev fw0");
        run("ip route add 2001:db8:64::/96 dev fw0");
        let hook = hook(index("up0"), index("fw0"));
        let tunnels = softwire.map(|role| {
            let settings = Settings { role, mtu6: 1500, ..Settings::default() };
            Tunnels { settings, maps: Arc::new(SoftwireMaps::make(role, 16).expect("maps")) }
        });
        let options = Options { tunnels, ..Options::new(&folders.pins, hook) };
        let config = config("pool6 = [\"2001:db8:64::/96\"]");
        let programs = Accelerator::start(&config, &options).expect("programs at their place");
        let totals = || programs.totals().expect("counters");
        let ended = |totals: &Totals| totals.drops(DropReason::Loop);

        let (v4, v6) = (packet(V4), packet(V6));
        let mut expected = 0;
        for (packet, ends, errors) in
            [(&v4, softwire.is_none(), v4_errors as fn() -> u64), (&v6, true, v6_errors)]
        {
            let before = errors();
            assert!(send_by(&mut queue, packet, Offload::default()));
            if ends {
                expected += 1;
                // The kernel finds no hop left, and would tell the sender if it had a route to it.
                poll("the kernel to drop it", || (errors() == before + 1).then_some(()));
            } else {
                let passes =
                    |queue: &mut _| take_from(queue).iter().any(|frame| frame.kind == IPV4);
                poll("it to reach the user engine", || passes(&mut queue).then_some(()));
            }
            assert_eq!(ended(&totals()), expected, "{:?}", totals());
        }
        programs.detach().expect("to detach");
    });
}

/// Packets that the kernel has dropped because of their header, as with a hop limit that ran out.
fn v4_errors() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let names = lines.next().expect("names").split(' ');
    let values = lines.next().expect("values").split(' ');
    let found = names.zip(values).find(|(name, _)| *name == "InHdrErrors");
    found.expect("the counter").1.parse().expect("a number")
}

fn v6_errors() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp6").expect("counters");
    let found = text.lines().find_map(|line| line.strip_prefix("Ip6InHdrErrors"));
    found.expect("the counter").trim().parse().expect("a number")
}
