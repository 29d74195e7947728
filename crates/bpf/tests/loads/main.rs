//! Does this kernel's verifier take the programs? Every kind of translator at every attach point that it can have is
//! loaded and attached; with everything on that makes programs longer, as well. Needs root.
//!
//! `make kernels` runs this on older and newer kernels.

mod kinds;

use std::process::Command;
use std::sync::Arc;
use std::thread;

use fordway_bpf::{
    Accelerator, Forwarding, Hook, Options, ShardGates, SoftwireMaps, StateMaps, Stateful, Tunnels,
};
use fordway_testhost::can_use_tun;
use fordway_testkit::sys;
use libtest_mimic::{Arguments, Failed, Trial};

use kinds::{Kind, State};

/// Attach points by the name in the configuration; and the ingress with direct forwarding.
const PLACES: [&str; 6] = ["interface", "uplink", "ingress", "in-place", "direct", "xdp"];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for kind in kinds::all() {
        for place in PLACES.into_iter().filter(|place| kind.places.contains(place)) {
            let (kind, name) = (kind.clone(), format!("{} at {place}", kind.name));
            trials.push(Trial::test(name, move || in_namespace(|| load(&kind, place))));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Runs `test` in a thread with a network namespace of its own.
fn in_namespace(test: impl FnOnce() -> Result<(), Failed> + Send) -> Result<(), Failed> {
    if !can_use_tun() {
        return Ok(());
    }
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            sys::enter_new_namespace().expect("a network namespace");
            test()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Loads and attaches as the daemon does, plainly and with everything on.
fn load(kind: &Kind, place: &str) -> Result<(), Failed> {
    for command in [
        "link set lo up",
        "tuntap add dev fw0 mode tun",
        "link set fw0 up",
        "link add veth0 type veth peer name veth1",
        "link set veth0 up",
        "link set veth1 up",
    ] {
        let done = Command::new("ip").args(command.split(' ')).status();
        assert!(done.is_ok_and(|status| status.success()), "ip {command}");
    }
    let index = |name: &str| nix::net::if_::if_nametoindex(name).expect("the device");
    let (tun, device, other) = (index("fw0"), index("veth0"), index("veth1"));
    let hook = match place {
        "interface" => Hook::Interface { tun },
        "uplink" => Hook::Uplink { device, tun },
        "ingress" | "in-place" | "direct" => Hook::Ingress { devices: vec![device, other], tun },
        _ => Hook::Xdp { devices: vec![device, other], tun },
    };
    let folder = Folder::new(kind, place);
    let forward = match place {
        "in-place" => Forwarding::InPlace,
        "direct" => Forwarding::Direct,
        _ => Forwarding::Stack,
    };
    let mut options = Options { forward, ..Options::new(&folder.0, hook) };
    match &kind.state {
        State::None => {}
        State::Nat64(settings) => {
            let maps = Arc::new(StateMaps::make(&settings.sizes, [3, 5])?);
            let gates = settings.shards.as_ref().map(|_| ShardGates::new()).transpose()?;
            let (settings, gates) = ((**settings).clone(), gates.map(Arc::new));
            options.stateful = Some(Stateful { settings, maps, gates });
        }
        State::Softwire(settings) => {
            let maps = Arc::new(SoftwireMaps::make(settings.role, 64)?);
            options.tunnels = Some(Tunnels { settings: *settings, maps });
        }
    }
    let mut config = kind.config.clone();
    let mut engine = Accelerator::start(&config, &options).map_err(|error| told(&error))?;
    print(kind, place, "plain", &engine);
    config.mss_clamp = true;
    config.traffic_class = fordway_xlat::TrafficClass::Set(0);
    if let Some(Tunnels { settings, .. }) = &mut options.tunnels {
        settings.mss_clamp = true;
    }
    options.measure = true;
    options.pass_rate = Some(1);
    options.trace = Some(100);
    engine.replace(&config, &options).map_err(|error| told(&error))?;
    print(kind, place, "everything", &engine);
    engine.detach()?;
    Ok(())
}

/// The error as people see it.
fn told(error: &fordway_bpf::Error) -> Failed {
    let hint = error.hint().unwrap_or_default();
    format!("{error}\nhint: {hint}").into()
}

/// How many instructions the verifier looked at, where the kernel tells (5.16).
fn print(kind: &Kind, place: &str, what: &str, engine: &Accelerator) {
    for attachment in engine.attachments() {
        let Ok(program) = libbpf_rs::Program::fd_from_id(attachment.program_id) else { continue };
        let number = std::os::fd::AsRawFd::as_raw_fd(&program);
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
        let info = info.unwrap_or_default();
        let looked = info.lines().find_map(|line| line.strip_prefix("verified_insns:"));
        let looked = looked.map_or("unknown", str::trim);
        println!("verified {looked} {} at {place}, {what}: {:?}", kind.name, attachment.place);
    }
}

/// A folder of pins that goes with what is left there.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(kind: &Kind, place: &str) -> Folder {
        fordway_bpf::mount_bpffs().expect("a BPF file system");
        let name = kind.name.replace([' ', '.'], "-");
        let name = format!("fordway-load-{}-{name}-{place}", std::process::id());
        Folder(std::path::Path::new("/sys/fs/bpf").join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fordway_bpf::take_down(&self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
