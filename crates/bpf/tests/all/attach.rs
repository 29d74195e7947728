//! Attaching to devices, switching over, adopting and taking down. Needs root.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fordway_bpf::{Accelerator, Error, Hook, Kind, Options, Place, probe, take_down};
use fordway_xlat::Direction;

use crate::common::{
    Folder, config, config_of, in_namespace, index, ip, is_loaded, kinds, links_of, route_by_veth0,
    seen, send, send_by, socket, tun, veth, wait_gone,
};

/// How tc programs are attached by this kernel.
fn tc_kind() -> Kind {
    if probe().unwrap().tcx { Kind::Tcx } else { Kind::Clsact }
}

#[test]
fn a_tun_gets_the_programs_and_is_left_as_it_was() {
    in_namespace(|| {
        let (folder, tun) = (Folder::new(), tun());
        let options = Options::new(folder.path(), Hook::Interface { tun });
        let engine = Accelerator::start(&config(), &options).unwrap();
        let attachments = engine.attachments().to_vec();
        assert_eq!(kinds(&attachments), [(tun, Place::Egress, tc_kind())]);
        let before = engine.totals().unwrap();
        send();
        let totals = engine.totals().unwrap();
        assert_eq!(seen(&totals) - seen(&before), 1);
        assert_eq!(totals.direction(Direction::V4ToV6).packets, 1);

        engine.detach().unwrap();
        assert_eq!(folder.names(), [""; 0]);
        assert!(!folder.path().exists());
        wait_gone(&attachments);
        assert!(!take_down(folder.path()).unwrap(), "there is nothing any more");
    });
}

#[test]
fn a_dead_process_leaves_the_programs_at_work_and_the_next_adopts_them() {
    in_namespace(|| {
        let (folder, tun) = (Folder::new(), tun());
        let options = Options::new(folder.path(), Hook::Interface { tun });
        let engine = Accelerator::start(&config(), &options).unwrap();
        let before = seen(&engine.totals().unwrap());
        let first = engine.attachments().to_vec();
        let link = format!("link-egress-{tun}");
        let link_id = (first[0].kind == Kind::Tcx).then(|| folder.link_id(&link));
        // As after kill -9: nothing of the process is left but what is pinned.
        drop(engine);
        assert!(is_loaded(&first[0]));
        send();

        let engine = Accelerator::start(&config_of(&["2001:db8:65::/96"]), &options).unwrap();
        assert_eq!(seen(&engine.totals().unwrap()), before + 1, "counted while nobody was there");
        let second = engine.attachments().to_vec();
        assert_ne!(first[0].program_id, second[0].program_id);
        assert_eq!(link_id, (first[0].kind == Kind::Tcx).then(|| folder.link_id(&link)));
        send();
        assert_eq!(seen(&engine.totals().unwrap()), before + 2);
        wait_gone(&first);

        drop(engine);
        assert!(take_down(folder.path()).unwrap());
        wait_gone(&second);
    });
}

#[test]
fn programs_are_replaced_and_counters_go_on() {
    in_namespace(|| {
        let (folder, tun) = (Folder::new(), tun());
        let mut options = Options::new(folder.path(), Hook::Interface { tun });
        let mut engine = Accelerator::start(&config(), &options).unwrap();
        let first = engine.attachments().to_vec();
        let before = seen(&engine.totals().unwrap());
        send();
        options.measure = true;
        engine.replace(&config(), &options).unwrap();
        send();
        let totals = engine.totals().unwrap();
        assert_eq!(seen(&totals), before + 2);
        assert_eq!(totals.measured_packets, 1);
        assert!(totals.ns_per_packet().unwrap() > 0.0);
        wait_gone(&first);
        engine.detach().unwrap();
    });
}

#[test]
fn no_packet_slips_by_while_programs_are_switched() {
    for force_clsact in [false, true] {
        in_namespace(|| {
            let (folder, tun) = (Folder::new(), tun());
            let hook = Hook::Interface { tun };
            let options = Options { force_clsact, ..Options::new(folder.path(), hook) };
            let start = || Accelerator::start(&config(), &options).unwrap();
            let mut engine = start();
            let socket = socket();
            let stop = AtomicBool::new(false);
            let (engine, sent) = thread::scope(|scope| {
                let sender = scope.spawn(|| {
                    let mut sent = 0;
                    while !stop.load(Ordering::Relaxed) {
                        send_by(&socket);
                        sent += 1;
                    }
                    sent
                });
                let stopping = StopAtEnd(&stop);
                for _ in 0..5 {
                    engine.replace(&config(), &options).unwrap();
                    // As a new process does.
                    engine = start();
                }
                drop(stopping);
                (engine, sender.join().unwrap())
            });
            let totals = engine.totals().unwrap();
            assert_eq!(totals.direction(Direction::V4ToV6).packets, sent);
            engine.detach().unwrap();
        });
    }
}

/// Stops the sender even if the test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_can_not_be_loaded_changes_nothing() {
    in_namespace(|| {
        let (folder, tun) = (Folder::new(), tun());
        let options = Options::new(folder.path(), Hook::Interface { tun });
        let many: Vec<String> = (0..17).map(|n| format!("2001:db8:{n:x}::/96")).collect();
        let many = config_of(&many.iter().map(String::as_str).collect::<Vec<_>>());

        let error = Accelerator::start(&many, &options).unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
        assert!(error.hint().is_some());
        assert!(!folder.path().exists());

        let mut engine = Accelerator::start(&config(), &options).unwrap();
        let (names, attachments) = (folder.names(), engine.attachments().to_vec());
        let error = engine.replace(&many, &options).unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
        assert_eq!(folder.names(), names);
        assert_eq!(engine.attachments(), attachments);
        let before = seen(&engine.totals().unwrap());
        send();
        assert_eq!(seen(&engine.totals().unwrap()), before + 1);
        engine.detach().unwrap();
    });
}

#[test]
fn a_switch_that_fails_half_way_is_undone() {
    in_namespace(|| {
        let (folder, other) = (Folder::new(), Folder::new());
        let (tun, (veth0, veth1)) = (tun(), veth());
        // Somebody else's XDP program at the second device.
        ip("tuntap add dev fw1 mode tun");
        let hook = Hook::Xdp { devices: vec![veth1], tun: index("fw1") };
        let theirs = Accelerator::start(&config(), &Options::new(other.path(), hook)).unwrap();

        let hook = Hook::Xdp { devices: vec![veth0, veth1], tun };
        let options = Options::new(folder.path(), hook);
        let error = Accelerator::start(&config(), &options).unwrap_err();
        assert!(matches!(&error, Error::Busy { device } if device == "veth1"), "{error}");
        assert!(error.hint().unwrap().contains("veth1"));
        assert!(!folder.path().exists(), "{:?}", folder.names());

        let interface = Options::new(folder.path(), Hook::Interface { tun });
        let mut engine = Accelerator::start(&config(), &interface).unwrap();
        let (names, attachments) = (folder.names(), engine.attachments().to_vec());
        // None at a clsact filter.
        let links = links_of(&attachments[0]);
        engine.replace(&config(), &options).unwrap_err();
        assert_eq!(folder.names(), names);
        assert_eq!(links_of(&attachments[0]), links, "the old program is back at its link");
        let before = seen(&engine.totals().unwrap());
        send();
        assert_eq!(seen(&engine.totals().unwrap()), before + 1);

        // The same for a process that adopts: it holds none of the old programs itself.
        drop(engine);
        Accelerator::start(&config(), &options).unwrap_err();
        assert_eq!(links_of(&attachments[0]), links);
        assert_eq!(folder.names(), names);

        theirs.detach().unwrap();
        let engine = Accelerator::start(&config(), &options).unwrap();
        assert_eq!(engine.attachments().len(), 3);
        engine.detach().unwrap();
    });
}

#[test]
fn an_uplink_gets_both_programs_and_the_interface_one() {
    in_namespace(|| {
        let (folder, tun, (veth0, _)) = (Folder::new(), tun(), veth());
        let hook = Hook::Uplink { device: veth0, tun };
        let options = Options::new(folder.path(), hook);
        let engine = Accelerator::start(&config(), &options).unwrap();
        let attachments = engine.attachments().to_vec();
        let kind = tc_kind();
        assert_eq!(
            kinds(&attachments),
            [
                (veth0, Place::Egress, kind),
                (veth0, Place::Ingress, kind),
                (tun, Place::Egress, kind)
            ]
        );
        drop(engine);

        // Back to the interface: the uplink's programs go, the TUN's come.
        let options = Options::new(folder.path(), Hook::Interface { tun });
        let engine = Accelerator::start(&config(), &options).unwrap();
        assert_eq!(kinds(engine.attachments()), [(tun, Place::Egress, kind)]);
        wait_gone(&attachments);
        engine.detach().unwrap();
    });
}

#[test]
fn devices_that_do_not_fit_are_refused() {
    in_namespace(|| {
        let (folder, tun, (port, _)) = (Folder::new(), tun(), veth());
        ip("link add br0 type bridge");
        ip("link set veth0 master br0");
        let start = |hook| Accelerator::start(&config(), &Options::new(folder.path(), hook));
        let refused = [
            (Hook::Uplink { device: index("lo"), tun }, "link layer of type 772"),
            (Hook::Xdp { devices: vec![tun], tun }, "fw0 is no Ethernet device"),
            (Hook::Xdp { devices: vec![], tun }, "names of devices"),
            (Hook::Xdp { devices: vec![port], tun }, "veth0 is part of a bridge"),
            (Hook::Ingress { devices: vec![port], tun }, "veth0 is part of a bridge"),
        ];
        for (hook, text) in refused {
            let error = start(hook).unwrap_err();
            assert!(matches!(error, Error::Unsupported(_)), "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
        for hook in [
            Hook::Interface { tun: 999_999 },
            Hook::Uplink { device: 999_999, tun },
            Hook::Xdp { devices: vec![999_999], tun },
        ] {
            let error = start(hook).unwrap_err();
            assert!(matches!(error, Error::NoDevice { ifindex: 999_999 }), "{error}");
        }
        assert!(!folder.path().exists());
    });
}

#[test]
fn a_device_that_was_made_anew_is_attached_to_anew() {
    in_namespace(|| {
        let (folder, first) = (Folder::new(), tun());
        let options = Options::new(folder.path(), Hook::Interface { tun: first });
        let engine = Accelerator::start(&config(), &options).unwrap();
        send();
        let counted = seen(&engine.totals().unwrap());
        drop(engine);
        ip("link delete fw0");
        let second = tun();
        assert_ne!(first, second);
        let options = Options::new(folder.path(), Hook::Interface { tun: second });
        let engine = Accelerator::start(&config(), &options).unwrap();
        assert_eq!(kinds(engine.attachments()), [(second, Place::Egress, tc_kind())]);
        assert!(
            !folder
                .names()
                .iter()
                .any(|name| name.starts_with("link") && name.ends_with(&format!("-{first}")))
        );
        assert!(seen(&engine.totals().unwrap()) >= counted, "the counters went on");

        // The device goes before the engine is taken down.
        let attachments = engine.attachments().to_vec();
        ip("link delete fw0");
        engine.detach().unwrap();
        assert!(!folder.path().exists());
        wait_gone(&attachments);
    });
}

#[test]
fn a_device_with_the_same_index_is_another_device() {
    in_namespace(|| {
        let folder = Folder::new();
        ip("tuntap add dev fw0 mode tun");
        let first = index("fw0");
        let options = Options::new(folder.path(), Hook::Interface { tun: first });
        drop(Accelerator::start(&config(), &options).unwrap());
        ip("link delete fw0");
        ip(&format!("link add name fw0 index {first} type veth peer name fw1"));
        ip("link set fw0 up");
        let engine = Accelerator::start(&config(), &options).unwrap();
        assert_eq!(kinds(engine.attachments()), [(first, Place::Egress, tc_kind())]);
        if tc_kind() == Kind::Tcx {
            assert_eq!(links_of(&engine.attachments()[0]), 1, "the old link has gone");
        }
        engine.detach().unwrap();
    });
}

#[test]
fn other_translators_at_the_same_device_stay() {
    in_namespace(|| {
        let (ours, theirs) = (Folder::new(), Folder::new());
        let (tun, (veth0, _)) = (tun(), veth());
        route_by_veth0();
        let hook = Hook::Uplink { device: veth0, tun };
        for force_clsact in [false, true] {
            let options = |folder: &Folder| Options {
                force_clsact,
                ..Options::new(folder.path(), hook.clone())
            };
            let first = Accelerator::start(&config(), &options(&theirs)).unwrap();
            let second = Accelerator::start(&config(), &options(&ours)).unwrap();
            let attachments = first.attachments().to_vec();
            second.detach().unwrap();
            let before = seen(&first.totals().unwrap());
            send();
            assert_eq!(seen(&first.totals().unwrap()), before + 1);
            assert!(attachments.iter().all(is_loaded));
            first.detach().unwrap();
        }
    });
}

/// Whoever ends the chain before the program at an uplink's egress would let IPv4 leave untranslated.
#[test]
fn nobody_comes_before_the_egress_of_an_uplink() {
    for force_clsact in [false, true] {
        in_namespace(|| {
            let (ours, theirs) = (Folder::new(), Folder::new());
            let (tun, (veth0, _)) = (tun(), veth());
            route_by_veth0();
            let of = |folder: &Folder, hook| {
                let pins = folder.path().join("namespace").join("name");
                Options { force_clsact, ..Options::new(pins, hook) }
            };
            // Somebody's, who sends all that he sees elsewhere.
            let other = of(&theirs, Hook::Interface { tun: veth0 });
            let first = Accelerator::start(&config(), &other).unwrap();
            let uplink = of(&ours, Hook::Uplink { device: veth0, tun });
            let engine = Accelerator::start(&config(), &uplink).unwrap();
            assert_eq!(engine.ahead().unwrap(), []);
            send();
            assert_eq!(seen(&engine.totals().unwrap()), 1);
            drop(engine);
            let engine = Accelerator::start(&config(), &uplink).unwrap();
            assert_eq!(engine.ahead().unwrap(), [], "taken over");

            // Who comes later and wants to be first is told.
            let later = of(&theirs, Hook::Uplink { device: veth0, tun });
            let later = Options { pins: theirs.path().join("namespace").join("later"), ..later };
            let second = Accelerator::start(&config(), &later).unwrap();
            let ahead = engine.ahead().unwrap();
            assert!(matches!(&ahead[..], [(device, them)] if *device == veth0 && them.len() == 1));
            second.detach().unwrap();
            assert_eq!(engine.ahead().unwrap(), []);
            // A translator of the same namespace leaves what is not its own.
            let same = Options { pins: ours.path().join("namespace").join("second"), ..later };
            let second = Accelerator::start(&config(), &same).unwrap();
            assert_eq!(engine.ahead().unwrap(), []);
            for engine in [engine, first, second] {
                engine.detach().unwrap();
            }
        });
    }
}

#[test]
fn pins_outside_a_bpf_file_system_are_refused() {
    in_namespace(|| {
        let tun = tun();
        let folder = std::env::temp_dir().join(format!("fordway-bpf-{}", std::process::id()));
        let options = Options::new(&folder, Hook::Interface { tun });
        let error = Accelerator::start(&config(), &options).unwrap_err();
        fs::remove_dir(&folder).ok();
        assert!(error.to_string().contains("not in a BPF file system"), "{error}");
    });
}
