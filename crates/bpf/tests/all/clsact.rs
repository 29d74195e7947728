//! Filters of the clsact queueing discipline, on any kernel. Needs root.

use std::os::fd::AsFd;

use fordway_bpf::{Accelerator, Attachment, Hook, Kind, Options, Place};
use libbpf_rs::{Program, TC_EGRESS, TcHookBuilder};

use crate::common::{
    Folder, config, config_of, in_namespace, index, ip, is_loaded, kinds, route_by_veth0, seen,
    send, tc, tun, veth, wait_gone,
};

fn options(folder: &Folder, hook: Hook) -> Options {
    Options { force_clsact: true, ..Options::new(folder.path(), hook) }
}

fn qdiscs(device: &str) -> String {
    tc(&format!("qdisc show dev {device}"))
}

/// Attaches a program as somebody else would: with a priority before ours.
fn attach_theirs(program: &Folder, ifindex: u32) {
    let path = program.path().join("program-fordway_interface");
    let program = Program::fd_from_pinned_path(path).unwrap();
    let mut hook = TcHookBuilder::new(program.as_fd())
        .ifindex(ifindex as i32)
        .handle(1)
        .priority(7)
        .hook(TC_EGRESS);
    hook.create().unwrap();
    hook.attach().unwrap();
}

/// Programs of somebody's, to attach by hand.
fn theirs() -> (Folder, Vec<Attachment>) {
    let folder = Folder::new();
    ip("tuntap add dev other mode tun");
    let tun = index("other");
    let hook = Hook::Interface { tun };
    let engine = Accelerator::start(&config(), &Options::new(folder.path(), hook)).unwrap();
    let attachments = engine.attachments().to_vec();
    (folder, attachments)
}

#[test]
fn the_queueing_discipline_comes_and_goes_with_us() {
    in_namespace(|| {
        let (folder, tun, (veth0, _)) = (Folder::new(), tun(), veth());
        route_by_veth0();
        assert!(!qdiscs("veth0").contains("clsact"));
        let options = options(&folder, Hook::Uplink { device: veth0, tun });
        let mut engine = Accelerator::start(&config(), &options).unwrap();
        let first = engine.attachments().to_vec();
        assert_eq!(
            kinds(&first),
            [(veth0, Place::Egress), (veth0, Place::Ingress), (tun, Place::Egress)]
                .map(|(device, place)| (device, place, Kind::Clsact))
        );
        assert!(qdiscs("veth0").contains("clsact"));
        send();
        assert_eq!(seen(&engine.totals().unwrap()), 1);

        engine.replace(&config_of(&["2001:db8:65::/96"]), &options).unwrap();
        let second = engine.attachments().to_vec();
        wait_gone(&first);
        let filters = tc("filter show dev veth0 egress");
        assert_eq!(filters.matches("direct-action").count(), 1, "replaced, not added: {filters}");
        assert!(filters.contains(&format!("id {} ", second[0].program_id)), "{filters}");
        send();
        assert_eq!(seen(&engine.totals().unwrap()), 2);

        engine.detach().unwrap();
        wait_gone(&second);
        assert!(!qdiscs("veth0").contains("clsact"));
        assert!(!folder.path().exists());
    });
}

#[test]
fn filters_are_adopted() {
    in_namespace(|| {
        let (folder, tun, (veth0, _)) = (Folder::new(), tun(), veth());
        route_by_veth0();
        let options = options(&folder, Hook::Uplink { device: veth0, tun });
        let engine = Accelerator::start(&config(), &options).unwrap();
        let first = engine.attachments().to_vec();
        drop(engine);
        send();
        let engine = Accelerator::start(&config(), &options).unwrap();
        assert_eq!(seen(&engine.totals().unwrap()), 1);
        wait_gone(&first);
        assert_eq!(tc("filter show dev veth0 egress").matches("direct-action").count(), 1);
        assert_eq!(tc("filter show dev veth0 ingress").matches("direct-action").count(), 1);
        let second = engine.attachments().to_vec();
        drop(engine);
        assert!(fordway_bpf::take_down(folder.path()).unwrap());
        wait_gone(&second);
        assert!(!qdiscs("veth0").contains("clsact"), "the mark outlived two processes");
    });
}

#[test]
fn what_others_made_stays() {
    in_namespace(|| {
        let (folder, tun, (veth0, _)) = (Folder::new(), tun(), veth());
        let (their_folder, their_attachments) = theirs();
        attach_theirs(&their_folder, veth0);
        let before = tc("filter show dev veth0 egress");
        let hook = Hook::Uplink { device: veth0, tun };
        let engine = Accelerator::start(&config(), &options(&folder, hook)).unwrap();
        assert_eq!(tc("filter show dev veth0 egress").matches("direct-action").count(), 2);
        let attachments = engine.attachments().to_vec();
        engine.detach().unwrap();
        wait_gone(&attachments);
        assert_eq!(tc("filter show dev veth0 egress"), before);
        assert!(qdiscs("veth0").contains("clsact"), "it was there before us");
        assert!(their_attachments.iter().all(is_loaded));
    });
}

#[test]
fn a_queueing_discipline_that_others_use_by_now_stays() {
    in_namespace(|| {
        let (folder, tun, (veth0, _)) = (Folder::new(), tun(), veth());
        let (their_folder, _) = theirs();
        let hook = Hook::Uplink { device: veth0, tun };
        let engine = Accelerator::start(&config(), &options(&folder, hook)).unwrap();
        attach_theirs(&their_folder, veth0);
        engine.detach().unwrap();
        assert!(qdiscs("veth0").contains("clsact"));
        assert_eq!(tc("filter show dev veth0 egress").matches("direct-action").count(), 1);
        assert!(!folder.path().exists());
    });
}

#[test]
fn a_filter_that_somebody_removed_comes_back() {
    in_namespace(|| {
        let (folder, tun, (veth0, _)) = (Folder::new(), tun(), veth());
        let options = options(&folder, Hook::Uplink { device: veth0, tun });
        let mut engine = Accelerator::start(&config(), &options).unwrap();
        tc("qdisc del dev veth0 clsact");
        assert!(!qdiscs("veth0").contains("clsact"));
        engine.replace(&config(), &options).unwrap();
        assert_eq!(tc("filter show dev veth0 egress").matches("direct-action").count(), 1);
        tc("qdisc del dev veth0 clsact");
        engine.detach().unwrap();
        assert!(!folder.path().exists());
    });
}

#[test]
fn devices_that_have_gone_are_no_obstacle() {
    in_namespace(|| {
        let (folder, tun, (veth0, _)) = (Folder::new(), tun(), veth());
        let options = options(&folder, Hook::Uplink { device: veth0, tun });
        let engine = Accelerator::start(&config(), &options).unwrap();
        let attachments = engine.attachments().to_vec();
        ip("link delete veth0");
        ip("link delete fw0");
        engine.detach().unwrap();
        assert!(!folder.path().exists());
        wait_gone(&attachments);
    });
}

#[test]
fn tcx_takes_over_from_filters_and_back() {
    in_namespace(|| {
        let (folder, tun, (veth0, _)) = (Folder::new(), tun(), veth());
        let filters = options(&folder, Hook::Uplink { device: veth0, tun });
        let links = Options { force_clsact: false, ..filters.clone() };
        let mut engine = Accelerator::start(&config(), &filters).unwrap();
        engine.replace(&config(), &links).unwrap();
        if fordway_bpf::probe().unwrap().tcx {
            assert!(engine.attachments().iter().all(|found| found.kind == Kind::Tcx));
            assert!(!qdiscs("veth0").contains("clsact"));
        }
        engine.replace(&config(), &filters).unwrap();
        assert!(engine.attachments().iter().all(|found| found.kind == Kind::Clsact));
        assert!(
            !folder.names().iter().any(|name| name.starts_with("link-")),
            "{:?}",
            folder.names()
        );
        engine.detach().unwrap();
    });
}
