//! CLAT, stateless and stateful gateway by Fordway: one command that makes its interface, addresses and
//! routes itself.

mod dns64;
mod engine;
pub(super) mod entries;
mod nat44;
pub(super) mod nat64;
mod relays;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use fordway_data::addresses::{
    BESIDE_V4, BOUND_V4, CLAT_V4, CLAT_V6, LAN_V4, LAN_V6, ROUTER_V4, ROUTER_V6, SIIT_MAPPING,
    SIIT_POOL6, TUNNEL_END_V6,
};
use fordway_data::spec::{Kind, MechanismSpec};
use serde_json::Value;

use super::dns::Role;
use super::{Availability, Context, Counted, Deployed, Mechanism, Memory, Room, Start, run_dir};
use crate::backend::Place;
use crate::error::{LabError, Result};
use crate::host::memory;
use crate::process::{Output, find_program, run_str};
use crate::topology::{Network, widest_mtu};

/// The gateway's program.
pub(super) struct Fordway {
    /// Where it was found.
    pub(super) program: Option<PathBuf>,
}

/// Finds the gateway: as told, by FORDWAY_BIN, beside the lab itself, on PATH.
pub(crate) fn locate(told: Option<&Path>) -> Result<Option<PathBuf>> {
    if let Some(path) = told {
        if path.is_file() {
            return Ok(Some(path.to_path_buf()));
        }
        return Err(LabError::Usage(format!("--fordway {}: no such file", path.display())));
    }
    if let Some(path) = std::env::var_os("FORDWAY_BIN").map(PathBuf::from) {
        if path.is_file() {
            return Ok(Some(path));
        }
        return Err(LabError::Usage(format!("FORDWAY_BIN={}: no such file", path.display())));
    }
    let beside = std::env::current_exe().ok().and_then(|lab| Some(lab.parent()?.join("fordway")));
    Ok(beside.filter(|path| path.is_file()).or_else(|| find_program("fordway")))
}

impl Fordway {
    fn argv(&self, context: Context<'_>) -> Option<Vec<String>> {
        let program = self.program.as_ref()?.display().to_string();
        let run_dir = run_dir(context).display().to_string();
        let mut argv = vec![program];
        argv.extend(options(context.spec, context.room, context.network.pref64));
        argv.extend(["--run-dir".to_owned(), run_dir]);
        Some(argv)
    }
}

impl Fordway {
    /// Runs a subcommand with its options in a place.
    pub(super) fn run(
        &self,
        context: Context<'_>,
        place: &Place,
        options: Vec<String>,
    ) -> Result<Deployed> {
        let program = self.program.as_ref().ok_or_else(missing)?.display().to_string();
        let run_dir = ["--run-dir".to_owned(), run_dir(context).display().to_string()];
        let config = options.join(" ");
        let argv = std::iter::once(program).chain(options).chain(run_dir).collect();
        self.started(context, place, argv, config)
    }

    /// Starts it.
    pub(super) fn started(
        &self,
        context: Context<'_>,
        place: &Place,
        argv: Vec<String>,
        config: String,
    ) -> Result<Deployed> {
        let log = context.logs.join(format!("{}-fordway.log", context.name));
        let daemon = context.backend.run(Some(place), &argv, Output::Log(&log))?;
        Ok(Deployed {
            config,
            argv,
            daemon: Some(daemon),
            run_dir: Some(run_dir(context)),
            program: self.program.clone(),
            ..Deployed::default()
        })
    }

    /// Command line and configuration of a name server.
    fn name_server(&self, context: Context<'_>) -> Result<(Vec<String>, String)> {
        let role = Role::of(context)?;
        let config = dns64::config(&role);
        let argv = self.by_file(context, "dns64", &config)?;
        Ok((role.before.into_iter().chain(argv).collect(), config))
    }

    /// The command line that runs a configuration file.
    pub(super) fn by_file(
        &self,
        context: Context<'_>,
        what: &str,
        config: &str,
    ) -> Result<Vec<String>> {
        let program = self.program.as_ref().ok_or_else(missing)?.display().to_string();
        let name = format!("{}-{what}.toml", context.name);
        let file = context.backend.deploy(&name, config.as_bytes())?.display().to_string();
        let folder = run_dir(context).display().to_string();
        Ok([&program, "run", "-c", &file, "--run-dir", &folder].map(str::to_owned).into())
    }
}

fn missing() -> LabError {
    LabError::Missing("the gateway's program was not found".into())
}

/// The subcommand that a kind needs, and what it is, where not every gateway has it.
fn command(kind: Kind) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        Kind::Nat64 => ("nat64", "stateful NAT64"),
        Kind::NatPt => ("nat-pt", "NAT-PT"),
        Kind::Nat44 => ("nat44", "NAT44"),
        Kind::DualStack => ("dual-stack", "dual stack"),
        Kind::Softwire => ("softwire", "softwires"),
        Kind::Dstm => ("dstm-client", "DSTM"),
        Kind::Trt => ("trt", "transport relays"),
        Kind::Proxy | Kind::ReverseProxy => ("proxy", "an HTTP proxy"),
        Kind::Dns64 => ("dns64", "DNS64"),
        _ => return None,
    })
}

/// Whether the gateway's program has a subcommand.
fn knows(program: &Path, command: &str) -> bool {
    let program = program.display().to_string();
    run_str(&[&program, command, "--help"]).is_ok_and(|out| out.status.success())
}

/// The subcommand and its options; a stateful gateway has so much room for sessions.
fn options(spec: &MechanismSpec, room: Room, pref64: &str) -> Vec<String> {
    match spec.kind {
        Kind::Nat44 => return nat44::options(),
        Kind::DualStack => {
            return ["dual-stack", "--device", "to-client", "--device", "to-iperf"]
                .map(str::to_owned)
                .into();
        }
        _ => {}
    }
    let attach = spec.attach.as_deref();
    let own: &[&str] = match spec.kind {
        Kind::Siit => {
            &["siit", "--pool6", SIIT_POOL6, "--eam", SIIT_MAPPING, "--interface", "siit0"]
        }
        Kind::Softwire => {
            &["softwire", "--v4", BOUND_V4, "--remote", TUNNEL_END_V6, "--local", CLAT_V6]
        }
        Kind::Nat64 | Kind::NatPt => &[],
        _ => &["clat", "--pref64", pref64, "--allow-private", "--interface", "clat0"],
    };
    let mut argv = own.to_vec();
    let behind = if spec.hops == 2 { behind_clat() } else { Vec::new() };
    if spec.kind == Kind::Clat {
        let addresses = if spec.hops == 2 { [BESIDE_V4, ROUTER_V6] } else { [CLAT_V4, CLAT_V6] };
        argv.extend(["--v4", addresses[0], "--v6", addresses[1]]);
        argv.extend(behind.iter().flat_map(|mapping| ["--eam", mapping.as_str()]));
    }
    argv.extend(["--engine", spec.engine.as_deref().unwrap_or("auto")]);
    argv.extend(attach.into_iter().flat_map(at));
    match (attach, spec.kind) {
        (Some("uplink"), _) => argv.extend(["--uplink", "uplink"]),
        (
            Some("ingress" | "in-place" | "direct" | "xdp"),
            Kind::Siit | Kind::Nat64 | Kind::NatPt,
        ) => {
            argv.extend(DEVICES);
        }
        (Some("xdp"), _) => argv.extend(["--device", "uplink"]),
        _ => {}
    }
    let widest = widest_mtu(true).to_string();
    if spec.kind == Kind::Nat64 && spec.hops == 2 {
        // A PLAT: the link to its CLATs is wider than others, and no route of the gateway says so.
        argv.extend(["--mtu", &widest]);
    }
    let stateful = match spec.kind {
        Kind::Nat64 => nat64::options(room, &spec.alg),
        Kind::NatPt => nat64::historic(room, &spec.alg),
        _ => Vec::new(),
    };
    stateful.into_iter().chain(argv.into_iter().map(str::to_owned)).collect()
}

/// Options that name the devices of a gateway.
pub(super) const DEVICES: [&str; 4] = ["--device", "to-client", "--device", "to-iperf"];

/// The lab's word for an attach point as the program's, and how packets go on from there: `in-place` and `direct` are
/// the ingress with another way out.
pub(super) fn point(attach: &str) -> (&str, Option<&str>) {
    match attach {
        "in-place" | "direct" => ("ingress", Some(attach)),
        attach => (attach, None),
    }
}

/// Options that name an attach point.
pub(super) fn at(attach: &str) -> Vec<&str> {
    let (attach, forward) = point(attach);
    let forward = forward.into_iter().flat_map(|forward| ["--forward", forward]);
    ["--attach", attach].into_iter().chain(forward).collect()
}

/// Mappings of the hosts on a link behind a CLAT's box: the application of a CLAT alone, and those of the 464XLAT network.
fn behind_clat() -> Vec<String> {
    let shown = LAN_V4.iter().filter_map(|network| {
        let (first, length) = network.split_once('/')?;
        let (first, length): (Ipv4Addr, u8) = (first.parse().ok()?, length.parse().ok()?);
        let v6 = Ipv6Addr::from_bits(LAN_V6.to_bits() | u128::from(first.to_bits()));
        Some(format!("{network}={v6}/{}", 96 + length))
    });
    std::iter::once(format!("{ROUTER_V4}={CLAT_V6}")).chain(shown).collect()
}

/// The list of a status in which a kind without an engine stands.
fn listed(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Nat44 => Some("nat44"),
        Kind::DualStack => Some("dual_stack"),
        Kind::Trt => Some("trt"),
        Kind::Proxy | Kind::ReverseProxy => Some("proxies"),
        _ => None,
    }
}

/// The control socket of a gateway.
fn socket(run_dir: &Path) -> PathBuf {
    run_dir.join("control.sock")
}

impl Mechanism for Fordway {
    fn availability(&self, kind: Kind) -> Availability {
        let Some(program) = &self.program else {
            return Availability::Missing {
                hint: "build the gateway: cargo build --release -p fordway (or say where it is: \
                       --fordway PATH)"
                    .into(),
            };
        };
        let said = run_str(&[&program.display().to_string(), "--version"]);
        let version = match said.and_then(crate::process::Finished::ok) {
            // The features of the build are on further lines.
            Ok(out) => out.stdout.lines().next().unwrap_or_default().to_owned(),
            Err(error) => {
                return Availability::Missing {
                    hint: format!("{} does not run: {error}", program.display()),
                };
            }
        };
        let lacks = command(kind).filter(|(command, _)| !knows(program, command));
        if let Some((command, what)) = lacks {
            return Availability::Missing {
                hint: format!(
                    "{version} at {} has no command `{command}`: build a gateway with {what}",
                    program.display()
                ),
            };
        }
        Availability::Ready { version, program: Some(program.clone()) }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let serves_names = context.spec.kind == Kind::Dns64 || super::is_resolver(context.spec);
        let (argv, config, place) = if serves_names {
            let (argv, config) = self.name_server(context)?;
            let place = context.network.host.as_ref();
            (argv, config, place.ok_or_else(|| super::no_middle(context.spec))?)
        } else if let Some(config) = relays::config(context.spec.kind) {
            let argv = self.by_file(context, "relay", &config)?;
            (argv, config, context.network.translator(context.spec))
        } else {
            if context.spec.kind == Kind::DualStack {
                // Otherwise the network would forward without it.
                let off =
                    ["sysctl", "-qw", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0"];
                crate::backend::must(
                    context.backend,
                    context.network.translator(context.spec),
                    &off,
                )?;
            }
            let argv = self.argv(context).ok_or_else(missing)?;
            let config = argv[1..].join(" ");
            (argv, config, context.network.translator(context.spec))
        };
        let deployed = self.started(context, place, argv, config)?;
        entries::fill(context, place, &deployed)?;
        Ok(deployed)
    }

    fn start(&self, context: Context<'_>) -> Option<Start> {
        Some(Start { argv: self.argv(context)?, ask: Some(socket(&run_dir(context))) })
    }

    fn runs(&self, deployed: &Deployed, spec: &MechanismSpec) -> Result<Option<String>> {
        let status = ask(deployed, "status").ok_or_else(|| LabError::NotReady {
            mechanism: spec.name.clone(),
            why: "it does not tell its status: which engine runs is unknown".into(),
        })?;
        self.ran(&status, spec)?;
        Ok(engine::words(&status))
    }

    fn ran(&self, status: &Value, spec: &MechanismSpec) -> Result<()> {
        if let Some(list) = listed(spec.kind) {
            let there = status.pointer(&format!("/{list}/0")).is_some();
            return there.then_some(()).ok_or_else(|| LabError::NotReady {
                mechanism: spec.name.clone(),
                why: format!("its status has nothing of {}", spec.kind.label()),
            });
        }
        engine::check(status, spec)
            .map_err(|why| LabError::NotReady { mechanism: spec.name.clone(), why })
    }

    fn counters(&self, deployed: &Deployed) -> Result<Option<Value>> {
        let bad = |why: &str| LabError::Parse { tool: "fordway stats --json", why: why.into() };
        let stats = ask(deployed, "stats").ok_or_else(|| bad("it does not answer"))?;
        // What is not there could not disagree.
        let translates =
            || [true, false].into_iter().all(|to_v6| self.read(&stats, &stats, to_v6).is_some());
        let listed =
            || ["dual_stack", "trt", "proxies"].iter().any(|list| stats[list][0].is_object());
        if dns64::asked(&stats).is_some()
            || nat44::created(&stats).is_some()
            || listed()
            || translates()
        {
            return Ok(Some(stats));
        }
        Err(bad("neither counters of a translator nor of a name server"))
    }

    fn read(&self, before: &Value, after: &Value, to_v6: bool) -> Option<Counted> {
        // Packets from an IPv4 client, by the words of the trait.
        if let Some(counted) = nat44::read(before, after, to_v6) {
            return Some(counted);
        }
        let way = if to_v6 { "v4_to_v6" } else { "v6_to_v4" };
        let number = |v: &Value, what: &str| {
            v.pointer(&format!("/translators/0/{way}/{what}")).and_then(Value::as_u64)
        };
        let since = |what: &str| {
            Some(number(after, what)?.saturating_sub(number(before, what).unwrap_or(0)))
        };
        let count = |v: &Value, reason: &str| {
            v.pointer("/translators/0/drops").and_then(|d| d[reason].as_u64()).unwrap_or(0)
        };
        let reasons = after.pointer("/translators/0/drops")?.as_object()?.keys();
        let drops = reasons
            .map(|r| (r.clone(), count(after, r).saturating_sub(count(before, r))))
            .filter(|(_, n)| *n > 0)
            .collect();
        Some(Counted { octets: since("octets")?, packets: since("packets")?, drops })
    }

    fn created(&self, before: &Value, after: &Value) -> Option<u64> {
        let created = |stats| nat64::created(stats).or_else(|| nat44::created(stats));
        Some(created(after)?.saturating_sub(created(before)?))
    }

    fn tracks_connections(&self, kind: Kind) -> bool {
        kind == Kind::Nat44
    }

    fn tracks_at<'a>(&self, spec: &MechanismSpec, network: &'a Network) -> Option<&'a Place> {
        network.host.as_ref().filter(|_| spec.kind == Kind::Nat44)
    }

    fn table_limit(&self, kind: Kind, room: Room) -> Option<u64> {
        matches!(kind, Kind::Nat64 | Kind::NatPt).then(|| nat64::limit(room).into())
    }

    fn asked(&self, before: &Value, after: &Value) -> Option<u64> {
        Some(dns64::asked(after)?.saturating_sub(dns64::asked(before)?))
    }

    fn requests(&self, before: &Value, after: &Value) -> Option<u64> {
        Some(relays::requests(after)?.saturating_sub(relays::requests(before)?))
    }

    fn memory(&self, deployed: &Deployed) -> Option<Memory> {
        if ask(deployed, "status").is_some_and(|status| nat44::tells(&status)) {
            return Some(Memory { growing: memory::slab()?, ..Memory::default() });
        }
        let pid = deployed.daemon.as_ref()?.pid();
        let maps = memory::program_maps(pid)?;
        let in_process = || nat64::table_octets(&ask(deployed, "status")?);
        Some(Memory {
            growing: memory::anonymous(pid)?,
            tables: if maps > 0 { maps } else { in_process()? },
            capacity: ask(deployed, "stats").as_ref().and_then(nat64::capacity),
            within: maps == 0,
        })
    }
}

/// What a running gateway answers to a read command.
pub(super) fn ask(deployed: &Deployed, command: &str) -> Option<Value> {
    let program = deployed.program.as_ref()?.display().to_string();
    let socket = socket(deployed.run_dir.as_ref()?).display().to_string();
    let mut argv = vec![program.as_str()];
    argv.extend(command.split(' ').chain(["--json", "--socket", &socket]));
    let out = run_str(&argv).ok()?.ok().ok()?;
    serde_json::from_str(&out.stdout).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_and_drops_of_a_flow_are_differences() {
        let stats = |up, down, full| {
            serde_json::json!({"translators": [{
                "drops": {"queue_full": full, "martian": 3},
                "v4_to_v6": {"octets": up, "packets": up / 10},
                "v6_to_v4": {"octets": down, "packets": 0}}]})
        };
        let (before, after) = (stats(10, 5, 1), stats(110, 7, 4));
        let read = |to_v6| Fordway { program: None }.read(&before, &after, to_v6).unwrap();
        assert_eq!(
            read(true),
            Counted { octets: 100, packets: 10, drops: vec![("queue_full".into(), 3)] }
        );
        assert_eq!(read(false).octets, 2);
        assert_eq!(Fordway { program: None }.read(&before, &serde_json::json!({}), true), None);
    }

    #[test]
    fn hosts_behind_a_clat_have_addresses_of_one_prefix() {
        let eams = behind_clat();
        let expected = [
            "192.0.0.2=2001:db8:1::c",
            "203.0.113.0/30=2001:db8:f00:464::cb00:7100/126",
            "198.18.0.0/16=2001:db8:f00:464::c612:0/112",
        ];
        assert_eq!(eams, expected);
        let experiment = fordway_data::spec::Experiment::find("rfc8219").unwrap();
        let whole = experiment.mechanism("464xlat-fordway-interface").unwrap();
        let clat = MechanismSpec { kind: Kind::Clat, ..whole.clone() };
        let argv = options(&clat, Room::of(10), "2001:db8:64::/96").join(" ");
        assert!(
            argv.contains(&format!("--v4 192.0.0.3 --v6 2001:db8:1::d --eam {}", eams[0])),
            "{argv}"
        );
        let alone = MechanismSpec { hops: 1, ..clat };
        let argv = options(&alone, Room::of(10), "2001:db8:64::/96").join(" ");
        assert!(argv.contains("--v4 192.0.0.1") && !argv.contains("--eam"), "{argv}");
    }

    #[test]
    fn every_arm_names_its_engine_and_what_its_attach_point_needs() {
        for experiment in fordway_data::spec::Experiment::built_in().unwrap() {
            let translates = |m: &&MechanismSpec| {
                let whole =
                    matches!(m.kind, Kind::Dns64 | Kind::Xlat464 | Kind::Softwire | Kind::Dstm);
                m.implementation == "fordway" && !whole && listed(m.kind).is_none()
            };
            for arm in experiment.mechanisms.iter().filter(translates) {
                let argv = options(arm, Room::of(1000), "64:ff9b::/96").join(" ");
                let engine = arm.engine.as_deref().expect("an arm says which engine it is about");
                assert!(argv.contains(&format!("--engine {engine}")), "{argv}");
                match arm.attach.as_deref() {
                    Some("uplink") => assert!(argv.contains("--uplink uplink"), "{argv}"),
                    Some(attach @ ("ingress" | "in-place" | "direct" | "xdp")) => {
                        assert!(argv.contains("--device to-iperf"), "{argv}");
                        for way in ["in-place", "direct"] {
                            let goes = argv.contains(&format!("--attach ingress --forward {way}"));
                            assert_eq!(goes, attach == way, "{argv}");
                        }
                    }
                    Some(other) => assert_eq!(other, "interface"),
                    None => assert!(engine == "user" && !argv.contains("--attach"), "{argv}"),
                }
            }
        }
    }
}
