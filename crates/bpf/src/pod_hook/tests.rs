//! The stubs beside programs of others at the same hooks.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use fordway_testhost::namespace::{Namespace, can_test};
use fordway_xlat::Config;
use fordway_xlat::addr::{Eam, EamTable};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};

use super::*;
use crate::pods::tests::Folder;
use crate::pods::{Pod, Pods};
use crate::{PodPrograms, maps};

const CLAT: &str = "2001:db8:5:0:c1a7::2";

#[test]
fn names_tell_pod_and_programs() {
    let [egress, ingress] = SIDES;
    let name = egress.name(1, 2);
    assert_eq!(name.len(), 15);
    assert_eq!(egress.name(u64::MAX, u32::MAX).len(), 15);
    assert!(name.starts_with(&egress.begin(1)) && !name.starts_with(&egress.begin(2)));
    assert!(egress.is_ours(&name) && !ingress.is_ours(&name));
    assert_ne!(name, egress.name(2, 1));
    assert_ne!(name, egress.name(1, 3));
    for other in ["", "fwe", "fordway_probe", "fwe_not_hexadec", "cil_from_contai"] {
        assert!(!egress.is_ours(other), "{other}");
    }
}

/// A pod whose node answers for an IPv4 host behind the prefix; no translator is needed.
struct Bench {
    /// Of this test alone: [`attached_pods`] looks for the programs of a key on the whole machine.
    key: u64,
    _node: Namespace,
    pod: Namespace,
    device: u32,
    pods: Pods,
    config: Config,
    programs: Arc<PodPrograms>,
    folder: Folder,
}

impl Bench {
    fn new(name: &str) -> Bench {
        let (node, pod) = (Namespace::create(), Namespace::create());
        node.ip(&format!("link add veth0 type veth peer name eth0 netns {}", pod.path));
        node.ip("link set veth0 up");
        pod.ip("link set eth0 up");
        node.add_address("2001:db8:5::1/64", "veth0");
        node.add_address("2001:db8:64::c633:640a/128", "lo");
        pod.add_address("2001:db8:5::2/64", "eth0");
        pod.add_address(&format!("{CLAT}/128"), "eth0");
        pod.add_address("192.0.0.1/32", "eth0");
        pod.ip("-4 route add default via inet6 2001:db8:5::1 dev eth0");
        let device = pod.index("eth0");

        let folder = Folder::new(name);
        let pods = Pods::create(&folder.0).expect("pods");
        let eam = Eam::new("192.0.0.1/32".parse().unwrap(), "100::/128".parse().unwrap());
        let config = Config {
            pool6: vec!["2001:db8:64::/96".parse().unwrap()],
            eam: EamTable::new([eam.unwrap()]).unwrap(),
            mtu6: 65_535,
            lowest_ipv6_mtu: 65_535,
            ..Config::default()
        };
        let programs = Arc::new(pods.programs(&config, 14).expect("programs"));
        let key = RandomState::new().hash_one(name);
        let entry = Pod {
            key,
            clat: CLAT.parse().unwrap(),
            address: "2001:db8:5::2".parse().unwrap(),
            network: 1,
            programs: programs.id,
            container: "one".to_owned(),
            interface: "eth0".to_owned(),
        };
        assert!(pods.insert(&entry).expect("an entry"));
        Bench { key, _node: node, pod, device, pods, config, programs, folder }
    }

    fn hook(&self, force_clsact: bool) -> PodHook {
        let device = self.device;
        self.pod.run(move || PodHook::new(device, force_clsact))
    }

    fn parts(&self, force_clsact: bool) -> (u64, PodHook, Arc<PodPrograms>) {
        (self.key, self.hook(force_clsact), Arc::clone(&self.programs))
    }

    fn attach(&self, force_clsact: bool) {
        let (key, hook, programs) = self.parts(force_clsact);
        self.pod.run(move || hook.attach(key, &programs).expect("stubs"));
    }

    fn check(&self, force_clsact: bool) -> Vec<String> {
        let (key, hook, programs) = self.parts(force_clsact);
        self.pod.run(move || hook.check(key, &programs).expect("a look"))
    }

    fn detach(&self, force_clsact: bool) {
        let hook = self.hook(force_clsact);
        self.pod.run(move || hook.detach(false).expect("to detach"));
    }

    fn is_attached(&self) -> bool {
        attached_pods(&[self.key ^ 1, self.key]).expect("programs") == [self.key]
    }

    /// A packet to IPv4 and its answer.
    fn ping(&self) {
        self.pod.output("ping", "-c 1 -W 60 -n 198.51.100.10");
    }

    fn end(self) {
        self.pods.remove(self.key).expect("to remove");
        self.pods.tidy().expect("to tidy up");
    }
}

/// A program of somebody else, which counts what it sees and lets it go on.
struct StandIn {
    program: Arc<OwnedFd>,
    seen: MapHandle,
}

impl StandIn {
    fn new() -> StandIn {
        let options = libbpf_sys::bpf_map_create_opts::default();
        let seen = maps::make(MapType::Array, "seen", [4, 8], 2, options).expect("a map");
        let ipv4 = i32::from(u16::to_be(0x0800));
        let program: [sys::Instruction; 15] = [
            // r7 = skb->protocol; r0 = is it another than IPv4?
            (0x61, 0x17, 16, 0),
            (0xb7, 0x00, 0, 0),
            (0x15, 0x07, 1, ipv4),
            (0xb7, 0x00, 0, 1),
            // r0 = lookup(seen, &r0)
            (0x63, 0x0a, -4, 0),
            (0x18, 0x11, 0, seen.as_fd().as_raw_fd()),
            (0x00, 0x00, 0, 0),
            (0xbf, 0xa2, 0, 0),
            (0x07, 0x02, 0, -4),
            (0x85, 0x00, 0, libbpf_sys::BPF_FUNC_map_lookup_elem as i32),
            (0x15, 0x00, 2, 0),
            // *r0 += 1
            (0xb7, 0x01, 0, 1),
            (0xdb, 0x10, 0, 0),
            // r0 = TC_ACT_UNSPEC; exit
            (0xb7, 0x00, 0, -1),
            (0x95, 0x00, 0, 0),
        ];
        let kind = libbpf_sys::BPF_PROG_TYPE_SCHED_CLS;
        let program = sys::load(kind, 0, c"stand_in", &program).expect("a program");
        StandIn { program: Arc::new(program), seen }
    }

    /// Behind what is there, or in front of it.
    fn attach(&self, bench: &Bench, side: Side, first: bool) {
        let (program, device) = (Arc::clone(&self.program), bench.device);
        bench.pod.run(move || {
            sys::tcx_attach(program.as_fd(), device, side.tcx(), first).expect("to attach");
        });
    }

    fn detach(&self, bench: &Bench, side: Side) {
        let (program, device) = (Arc::clone(&self.program), bench.device);
        bench.pod.run(move || {
            sys::tcx_detach(program.as_fd(), device, side.tcx()).expect("to detach");
        });
    }

    /// As a filter of an ordinary priority.
    fn filter(&self, bench: &Bench, side: Side) {
        let (program, device) = (Arc::clone(&self.program), bench.device);
        let point = if side.is_egress() { TC_EGRESS } else { TC_INGRESS };
        bench.pod.run(move || {
            let mut hook = TcHookBuilder::new(program.as_fd())
                .ifindex(device as i32)
                .handle(1)
                .priority(7)
                .hook(point);
            // The queueing discipline may be there.
            let _ = captured(|| hook.create());
            hook.attach().expect("a filter");
        });
    }

    /// Whether it has seen IPv4, and other packets, since the last question.
    fn saw(&self) -> [bool; 2] {
        [0_u32, 1].map(|key| {
            let key = key.to_ne_bytes();
            let value = self.seen.lookup(&key, MapFlags::ANY).unwrap().expect("an entry");
            self.seen.update(&key, &[0; 8], MapFlags::ANY).unwrap();
            value != [0; 8]
        })
    }
}

const NONE_OF_IPV4: [bool; 2] = [false, true];

#[test]
fn programs_of_others_see_the_network_s_packets() {
    if !can_test() || !sys::has_tcx() {
        return;
    }
    let [egress, ingress] = SIDES;
    let bench = Bench::new("order");
    let [out, inwards] = [StandIn::new(), StandIn::new()];
    out.attach(&bench, egress, false);
    inwards.attach(&bench, ingress, false);
    bench.attach(false);
    bench.ping();
    assert_eq!([out.saw(), inwards.saw()], [NONE_OF_IPV4; 2]);
    assert_eq!(bench.check(false), Vec::<String>::new());

    // Again behind ours, where they were not when ours came: at the ingress that is behind the translation.
    out.detach(&bench, egress);
    inwards.detach(&bench, ingress);
    out.attach(&bench, egress, false);
    inwards.attach(&bench, ingress, false);
    bench.ping();
    assert_eq!(out.saw(), NONE_OF_IPV4);
    assert!(inwards.saw()[0]);
    assert_eq!(bench.check(false), Vec::<String>::new());

    // In front of ours at the egress: CHECK says so, and ADD brings ours back to the front.
    out.detach(&bench, egress);
    out.attach(&bench, egress, true);
    bench.ping();
    assert!(out.saw()[0]);
    let wrong = bench.check(false);
    assert!(wrong.len() == 1 && wrong[0].contains("another program runs first"), "{wrong:?}");
    bench.attach(false);
    bench.ping();
    assert_eq!(out.saw(), NONE_OF_IPV4);
    assert_eq!(bench.check(false), Vec::<String>::new());

    bench.detach(false);
    assert!(bench.check(false).iter().all(|it| it.contains("no program")));
    bench.end();
}

#[test]
fn stubs_of_lost_programs_are_found_and_replaced() {
    if !can_test() || !sys::has_tcx() {
        return;
    }
    let mut bench = Bench::new("lost");
    assert!(!bench.is_attached());
    bench.attach(false);
    bench.ping();
    assert!(bench.is_attached());
    let id = bench.programs.id;
    // The pin goes, and with the last descriptor all programs in the map.
    std::fs::remove_file(bench.folder.0.join(format!("programs-{id:016x}"))).expect("a pin");
    let programs = bench.pods.programs(&bench.config, 14).expect("programs");
    bench.programs = Arc::new(programs);
    assert_eq!(bench.programs.id, id);
    let (pod, _) = bench.pods.get(bench.key).expect("entries").expect("the pod");
    assert!(!bench.pods.has_programs(pod.programs), "the entry says that they are lost");
    let wrong = bench.check(false);
    assert!(wrong.len() == 2 && wrong[0].contains("lost ones"), "{wrong:?}");
    bench.attach(false);
    assert_eq!(bench.check(false), Vec::<String>::new());
    bench.ping();
    bench.detach(false);
    bench.end();
}

#[test]
fn a_queueing_discipline_of_another_stays() {
    if !can_test() {
        return;
    }
    let bench = Bench::new("qdisc");
    let has_clsact = || bench.pod.output("tc", "qdisc show dev eth0").contains("clsact");
    bench.pod.output("tc", "qdisc add dev eth0 clsact");
    bench.detach(true);
    assert!(has_clsact(), "no stub was there");
    bench.attach(true);
    bench.detach(true);
    assert!(!has_clsact());
    bench.end();
}

#[test]
fn filters_are_for_kernels_without_tcx() {
    if !can_test() {
        return;
    }
    let [egress, ingress] = SIDES;
    let bench = Bench::new("clsact");
    bench.attach(true);
    bench.ping();
    // Once more, and with programs of others.
    let [out, inwards] = [StandIn::new(), StandIn::new()];
    out.filter(&bench, egress);
    inwards.filter(&bench, ingress);
    bench.attach(true);
    bench.ping();
    assert_eq!([out.saw(), inwards.saw()], [NONE_OF_IPV4; 2]);
    assert_eq!(bench.check(true), Vec::<String>::new());
    bench.detach(true);
    let filters = bench.pod.output("tc", "filter show dev eth0 egress");
    assert!(filters.contains("pref 7 ") && !filters.contains("pref 1 "), "{filters}");
    let (pod, totals) = bench.pods.get(bench.key).expect("entries").expect("the pod");
    assert_eq!((pod.container.as_str(), totals.translated), ("one", [2, 2]));
    assert!(totals.drops.is_empty() && totals.untranslatable.is_empty());
    bench.end();
}
