//! Events, counters over versions, privileges, XDP devices. Needs root.

use std::fs;
use std::os::fd::AsFd;

use caps::{CapSet, Capability};
use fordway_bpf::{Accelerator, Error, GracePeriods, Hook, Kind, Options, Outcome, Place, probe};
use fordway_testhost::is_root;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Program, Xdp, XdpFlags};
use nix::poll::{PollFd, PollFlags, PollTimeout};

use crate::common::{
    Folder, config, in_namespace, index, ip, kinds, seen, send, tun, veth, wait_gone,
};

#[test]
fn events_are_read() {
    in_namespace(|| {
        let (folder, tun) = (Folder::new(), tun());
        let mut options = Options::new(folder.path(), Hook::Interface { tun });
        let mut engine = Accelerator::start(&config(), &options).unwrap();
        assert!(engine.events().unwrap().is_none());
        send();
        options.trace = Some(100);
        engine.replace(&config(), &options).unwrap();
        let mut events = engine.events().unwrap().expect("a reader");
        assert_eq!(events.read().unwrap(), []);
        send();
        wait_readable(&events);
        let read = events.read().unwrap();
        let [event] = &read[..] else { panic!("{read:?}") };
        assert_eq!(event.outcome, Outcome::Translated);
        assert_eq!((event.len, event.gso_size, event.ifindex), (36, 0, tun));
        assert_eq!(event.before.len(), 36);
        assert_eq!(event.before[16..20], [198, 51, 100, 7]);
        assert_eq!(event.after[0] >> 4, 6);
        assert!(event.ns > 0);

        // The reader goes on when the programs are replaced.
        options.measure = true;
        engine.replace(&config(), &options).unwrap();
        send();
        wait_readable(&events);
        assert_eq!(events.read().unwrap().len(), 1);

        options.trace = None;
        engine.replace(&config(), &options).unwrap();
        assert!(engine.events().unwrap().is_none());
        engine.detach().unwrap();
    });
}

fn wait_readable(events: &fordway_bpf::Events) {
    let mut polled = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
    let ready = nix::poll::poll(&mut polled, PollTimeout::from(20_000_u16)).unwrap();
    assert_eq!(ready, 1, "no event came");
}

#[test]
fn counters_of_another_version_go_on() {
    in_namespace(|| {
        let (folder, tun) = (Folder::new(), tun());
        let options = Options::new(folder.path(), Hook::Interface { tun });
        let engine = Accelerator::start(&config(), &options).unwrap();
        send();
        send();
        let before = engine.totals().unwrap();
        assert_eq!(seen(&before), 2);
        drop(engine);
        // As if an older version had pinned them.
        for (now, then) in [("counters-tc-5", "counters-tc-0"), ("layout-5", "layout-0")] {
            fs::rename(folder.path().join(now), folder.path().join(then)).unwrap();
        }
        let engine = Accelerator::start(&config(), &options).unwrap();
        assert_eq!(engine.totals().unwrap(), before);
        send();
        assert_eq!(seen(&engine.totals().unwrap()), 3);
        let names = folder.names();
        assert!(!names.iter().any(|name| name.ends_with("-0")), "{names:?}");
        engine.detach().unwrap();
    });
}

#[test]
fn counters_that_nobody_can_read_begin_anew() {
    in_namespace(|| {
        let (folder, tun) = (Folder::new(), tun());
        let options = Options::new(folder.path(), Hook::Interface { tun });
        drop(Accelerator::start(&config(), &options).unwrap());
        send();
        let path = |name: &str| folder.path().join(name);
        fs::rename(path("counters-tc-5"), path("counters-tc-9")).unwrap();
        let engine = Accelerator::start(&config(), &options).unwrap();
        assert_eq!(seen(&engine.totals().unwrap()), 0);
        drop(engine);
        // A map of another kind under the name of ours.
        fs::remove_file(path("counters-tc-5")).unwrap();
        fs::rename(path("layout-5"), path("counters-tc-5")).unwrap();
        let engine = Accelerator::start(&config(), &options).unwrap();
        send();
        assert_eq!(seen(&engine.totals().unwrap()), 1);
        engine.detach().unwrap();
    });
}

/// Whether the kernel tells what its drivers can do with XDP: Linux 6.3.
fn tells_features() -> bool {
    let kernel = probe().unwrap().kernel;
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap());
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
    version >= (6, 3)
}

#[test]
fn xdp_goes_to_the_devices_and_the_tun() {
    in_namespace(|| {
        let (folder, tun, (veth0, veth1)) = (Folder::new(), tun(), veth());
        let both = [veth0.min(veth1), veth0.max(veth1)];
        let hook = Hook::Xdp { devices: vec![veth0, veth1], tun };
        let mut options = Options::new(folder.path(), hook);
        let mut engine = Accelerator::start(&config(), &options).unwrap();
        let attachments = engine.attachments().to_vec();
        let tc_kind = if probe().unwrap().tcx { Kind::Tcx } else { Kind::Clsact };
        assert_eq!(
            kinds(&attachments),
            [
                (tun, Place::Egress, tc_kind),
                (both[0], Place::Xdp, Kind::XdpNative),
                (both[1], Place::Xdp, Kind::XdpNative)
            ]
        );
        // Kernels before 6.3 don't tell that veth devices take redirected frames.
        let told = if tells_features() { both.to_vec() } else { Vec::new() };
        assert_eq!(redirect_targets(&attachments[1]), told);
        let link = format!("link-xdp-{veth0}");
        let link_id = folder.link_id(&link);
        // Both objects write to one ring buffer.
        options.trace = Some(10);
        engine.replace(&config(), &options).unwrap();
        assert_eq!(folder.link_id(&link), link_id, "switched, not attached anew");
        wait_gone(&attachments);
        assert_eq!(redirect_targets(&engine.attachments()[1]), told);

        let first = engine.attachments().to_vec();
        drop(engine);
        let engine = Accelerator::start(&config(), &options).unwrap();
        assert_eq!(engine.attachments()[1].kind, Kind::XdpNative);
        wait_gone(&first);
        engine.detach().unwrap();
    });
}

#[test]
fn xdp_is_generic_where_the_driver_can_not() {
    in_namespace(|| {
        let (folder, tun) = (Folder::new(), tun());
        // A bridge's driver runs no programs.
        ip("link add bridge0 type bridge");
        ip("link set bridge0 up");
        let bridge0 = index("bridge0");
        let options = Options::new(folder.path(), Hook::Xdp { devices: vec![bridge0], tun });
        let engine = Accelerator::start(&config(), &options).unwrap();
        let attachments = engine.attachments().to_vec();
        assert_eq!(attachments[1].kind, Kind::XdpGeneric);
        assert_eq!(redirect_targets(&attachments[1]), [bridge0]);
        drop(engine);
        let engine = Accelerator::start(&config(), &options).unwrap();
        assert_eq!(engine.attachments()[1].kind, Kind::XdpGeneric, "adopted as it is");
        engine.detach().unwrap();
    });
}

#[test]
fn xdp_stays_with_the_driver_at_large_mtus() {
    in_namespace(|| {
        let (folder, tun, (veth0, _)) = (Folder::new(), tun(), veth());
        ip("link set veth0 mtu 9000");
        ip("link set veth1 mtu 9000");
        let options = Options::new(folder.path(), Hook::Xdp { devices: vec![veth0], tun });
        let engine = Accelerator::start(&config(), &options).unwrap();
        assert_eq!(engine.attachments()[1].kind, Kind::XdpNative);
        engine.detach().unwrap();
    });
}

#[test]
fn an_xdp_program_of_others_is_not_displaced() {
    in_namespace(|| {
        let (folder, other) = (Folder::new(), Folder::new());
        let (tun, (veth0, veth1)) = (tun(), veth());
        // Theirs is attached the old way, without a link.
        let hook = Hook::Xdp { devices: vec![veth1], tun };
        let theirs = Accelerator::start(&config(), &Options::new(other.path(), hook)).unwrap();
        let path = other.path().join("program-fordway_xdp");
        let program = Program::fd_from_pinned_path(path).unwrap();
        let id = theirs.attachments()[1].program_id;
        for generic in [true, false] {
            let flags = || if generic { XdpFlags::SKB_MODE } else { XdpFlags::DRV_MODE };
            let xdp = Xdp::new(program.as_fd());
            xdp.attach(veth0 as i32, flags()).unwrap();
            let options = Options::new(folder.path(), Hook::Xdp { devices: vec![veth0], tun });
            let error = Accelerator::start(&config(), &options).unwrap_err();
            assert!(matches!(error, Error::Busy { .. }), "{error}");
            assert_eq!(xdp.query_id(veth0 as i32, flags()).unwrap(), id);
            xdp.detach(veth0 as i32, flags()).unwrap();
        }
        theirs.detach().unwrap();
    });
}

/// The keys of the XDP program's map of devices.
fn redirect_targets(attachment: &fordway_bpf::Attachment) -> Vec<u32> {
    let program = libbpf_rs::query::ProgInfoIter::with_query_opts(
        libbpf_rs::query::ProgInfoQueryOptions::default().include_map_ids(true),
    )
    .find(|info| info.id == attachment.program_id)
    .expect("the program");
    let map = program
        .map_ids
        .iter()
        .find_map(|&id| MapHandle::from_map_id(id).ok().filter(|map| map.name() == "devices"));
    let map = map.expect("the map of devices");
    let mut keys: Vec<u32> = map
        .keys()
        .filter(|key| map.lookup(key, MapFlags::ANY).unwrap().is_some())
        .map(|key| u32::from_ne_bytes(key.try_into().unwrap()))
        .collect();
    keys.sort_unstable();
    keys
}

#[test]
fn three_capabilities_are_enough() {
    in_namespace(|| {
        let (folder, tun, (veth0, _)) = (Folder::new(), tun(), veth());
        let few = [Capability::CAP_BPF, Capability::CAP_NET_ADMIN, Capability::CAP_PERFMON];
        caps::set(None, CapSet::Effective, &few.into_iter().collect()).unwrap();
        probe().unwrap();
        let interface = Options::new(folder.path(), Hook::Interface { tun });
        let uplink = Options::new(folder.path(), Hook::Uplink { device: veth0, tun });
        let xdp = Options::new(folder.path(), Hook::Xdp { devices: vec![veth0], tun });
        let filters = Options { force_clsact: true, ..uplink.clone() };
        for options in [interface, uplink, xdp, filters] {
            let mut engine = Accelerator::start(&config(), &options).unwrap();
            let first = engine.attachments().to_vec();
            engine.replace(&config(), &options).unwrap();
            engine.totals().unwrap();
            let second = engine.attachments().to_vec();
            drop(engine);
            let engine = Accelerator::start(&config(), &options).unwrap();
            engine.detach().unwrap();
            assert!(!folder.path().exists());
            // Listing programs takes more than these capabilities.
            caps::raise(None, CapSet::Effective, Capability::CAP_SYS_ADMIN).unwrap();
            wait_gone(&first);
            wait_gone(&second);
            caps::drop(None, CapSet::Effective, Capability::CAP_SYS_ADMIN).unwrap();
        }
    });
}

#[test]
fn grace_periods_are_made_with_capabilities_and_waited_for_without() {
    if !is_root() {
        return;
    }
    let periods = GracePeriods::new().unwrap();
    std::thread::spawn(move || {
        caps::clear(None, CapSet::Effective).unwrap();
        caps::clear(None, CapSet::Permitted).unwrap();
        for _ in 0..2 {
            periods.wait().unwrap();
        }
    })
    .join()
    .unwrap();
}

#[test]
fn a_missing_capability_is_named() {
    if !is_root() {
        return;
    }
    std::thread::spawn(|| {
        for missing in [Capability::CAP_BPF, Capability::CAP_NET_ADMIN, Capability::CAP_PERFMON] {
            let all = [Capability::CAP_BPF, Capability::CAP_NET_ADMIN, Capability::CAP_PERFMON];
            let rest = all.into_iter().filter(|&capability| capability != missing).collect();
            caps::set(None, CapSet::Effective, &rest).unwrap();
            let refused = probe().unwrap_err();
            assert!(refused.to_string().contains(&missing.to_string()), "{refused}");
            assert!(refused.hint.is_some());
        }
    })
    .join()
    .unwrap();
}

#[test]
fn pins_that_somebody_cleared_away_come_back() {
    in_namespace(|| {
        let (folder, tun) = (Folder::new(), tun());
        let options = Options::new(folder.path(), Hook::Interface { tun });
        let mut engine = Accelerator::start(&config(), &options).unwrap();
        std::fs::remove_dir_all(folder.path()).unwrap();
        engine.replace(&config(), &options).unwrap();
        let before = seen(&engine.totals().unwrap());
        send();
        assert_eq!(seen(&engine.totals().unwrap()), before + 1);
        engine.detach().unwrap();
        assert!(!folder.path().exists());
    });
}
