//! Tundra by a stand-in, as it is in no package: it speaks Tundra's command line, and TAYGA translates behind it.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::{Bench, Folder, can_run, has, lines, programs, small, text};

const STAND_IN: &str = include_str!("tundra-nat64.py");

/// A folder with the stand-in alone, and a PATH that begins with it.
fn on_path(bench: &Bench) -> String {
    let folder = bench.path("bin");
    std::fs::create_dir(&folder).expect("a folder");
    let program = folder.join("tundra-nat64");
    std::fs::write(&program, STAND_IN).expect("a program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("own file");
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

#[test]
fn tundra_is_deployed_probed_measured_and_taken_down() {
    if !can_run() || !has("tayga", "clat") || !programs(&["python3"]) {
        return;
    }
    let bench = Bench::new();
    let path = on_path(&bench);
    let experiment = small("clat-vs-dual-stack", &["native-v6", "clat-tundra"], &["rtt"], "");
    let file = bench.write("tundra.toml", &experiment);
    for version in ["5.0.5", "4.1.2"] {
        let mut command = bench.command(&["run", &file, "--out", &bench.shown(version)]);
        let done = command.env("PATH", &path).env("TUNDRA_VERSION", version).output();
        let done = done.expect("the lab starts");
        assert!(done.status.success(), "{}", text(&done.stderr));
        let run = Folder::at(bench.path(version));
        assert_eq!(run.skipped("clat-tundra"), None);
        for check in ["ping large", "tcp payload", "udp checksum", "path mtu"] {
            run.assert_passed("clat-tundra", check);
        }
        let trial = run.trial("clat-tundra", "rtt");
        assert!(trial["value"].as_f64().is_some_and(|ms| ms > 0.0), "{trial}");
        assert!(trial["version"].as_str().is_some_and(|said| said.contains(version)), "{trial}");
        assert_eq!(trial["mechanism_argv"][0], "tundra-nat64");
        assert_eq!(trial["mechanism_argv"][3], "translate");
        bench.assert_clean(&[version]);
        assert!(!lines(&bench.path(version).join("trials.jsonl")).is_empty());
    }
}

#[test]
fn the_stand_in_refuses_what_tundra_refuses() {
    if !programs(&["python3"]) {
        return;
    }
    let bench = Bench::new();
    let path = on_path(&bench);
    let good = "program.translator_threads =\nprogram.privilege_drop_user =\nprogram.privilege_drop_group =\n\
                io.mode = tun\nio.tun.device_path =\nio.tun.interface_name = clat0\nio.tun.owner_user =\n\
                io.tun.owner_group =\nio.tun.multi_queue = no\nrouter.ipv4 = 192.0.0.2\n\
                router.ipv6 = 2001:db8:1::d\nrouter.generated_packet_ttl = 255\naddressing.mode = clat\n\
                addressing.nat64_clat.ipv4 = 192.0.0.1\naddressing.nat64_clat.ipv6 = 2001:db8:1::c\n\
                addressing.nat64_clat_siit.prefix = 64:ff9b::\n\
                addressing.nat64_clat_siit.allow_translation_of_private_ips = yes\n\
                translator.ipv4.outbound_mtu = 1500\ntranslator.ipv6.outbound_mtu = 1500\n\
                translator.6to4.copy_dscp_and_ecn = yes\ntranslator.4to6.copy_dscp_and_ecn = yes\n";
    let said = |config: &str, args: &[&str]| {
        let file = bench.write("tundra.conf", config);
        let mut command = Command::new("tundra-nat64");
        command.env("PATH", &path).env_remove("TUNDRA_VERSION").args(["-c", &file]).args(args);
        let done = command.output().expect("the stand-in starts");
        (done.status.success(), text(&done.stdout) + &text(&done.stderr))
    };
    let (valid, words) = said(good, &["validate-config"]);
    assert!(valid && words.contains("is valid"), "{words}");
    for (from, to, why) in [
        ("io.mode = tun", "io.mode = tun\nio.colour = red", "unknown key: io.colour"),
        ("io.tun.multi_queue = no", "program.chroot_dir =", "unknown key: program.chroot_dir"),
        ("router.ipv4 = 192.0.0.2\n", "", "router.ipv4 is missing"),
        ("ipv6.outbound_mtu = 1500", "ipv6.outbound_mtu = 1000", "invalid value"),
        ("clat.ipv6 = 2001:db8:1::c", "clat.ipv6 = 192.0.0.1", "invalid value"),
    ] {
        assert!(good.contains(from), "{from}");
        let (valid, words) = said(&good.replace(from, to), &["validate-config"]);
        assert!(!valid && words.contains(why), "{words}");
    }
    assert!(!said(good, &["reload"]).0, "an unknown mode");
}
