//! Commands for packagers and for the lab itself.

use std::path::Path;
use std::time::Duration;

use clap::CommandFactory;
use fordway_load::web::exchange;
use fordway_load::web::session::{Wanted, Way, measure};
use fordway_load::{background, datagrams, dns, echo, flows, frames, pulses, web};

use crate::cli::{Cli, Probe, Tester};
use crate::error::{EXIT_DONE, EXIT_FAILED, LabError, Result};
use crate::load::tester::Ends;
use crate::probe::{client, dial, names, server, start};
use crate::process;

/// How long a door is knocked at.
const KNOCK: Duration = Duration::from_millis(200);

/// Prints completions for a shell.
pub(super) fn completions(shell: clap_complete::Shell) -> Result<u8> {
    clap_complete::generate(shell, &mut Cli::command(), "fordway-lab", &mut std::io::stdout());
    Ok(EXIT_DONE)
}

/// Writes one man page per command.
pub(super) fn man(dir: &Path) -> Result<u8> {
    std::fs::create_dir_all(dir).map_err(LabError::file(dir))?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(LabError::file(dir))?;
    for entry in std::fs::read_dir(dir).map_err(LabError::file(dir))?.flatten() {
        let own = entry.file_name().to_string_lossy().starts_with("fordway-lab");
        if own && entry.path().extension().is_some_and(|kind| kind == "1") {
            let path = entry.path();
            let page = std::fs::read_to_string(&path).map_err(LabError::file(&path))?;
            std::fs::write(&path, with_examples(&page)).map_err(LabError::file(&path))?;
        }
    }
    Ok(EXIT_DONE)
}

/// The page with its examples in a section of their own, each on a line as it is typed.
fn with_examples(page: &str) -> String {
    let Some((before, rest)) = page.split_once(".SH EXTRA\nExamples:\n") else {
        return page.to_owned();
    };
    let (examples, after) = rest.find(".SH ").map_or((rest, ""), |at| rest.split_at(at));
    let (examples, exit) = match examples.split_once("\nExit status: ") {
        Some((examples, exit)) => (examples, format!(".SH EXIT STATUS\n{exit}")),
        None => (examples, String::new()),
    };
    format!("{before}.SH EXAMPLES\n.nf\n{}\n.fi\n{exit}{after}", examples.trim_end())
}

/// Runs a probe inside a namespace.
pub(super) fn probe(probe: Probe) -> Result<u8> {
    match probe {
        Probe::Serve { own } => {
            server::serve(&own).map_err(LabError::file("probe server"))?;
            Ok(EXIT_DONE)
        }
        Probe::Client { target, tcp_bytes, udp_sizes, refused, proxy, site } => {
            super::print_json(&client::run(&client::Wanted {
                target,
                tcp_bytes,
                udp_sizes,
                refused,
                way: dial::Way::of(proxy, site),
            }))
        }
        Probe::Knock { door } => {
            let taken = std::net::TcpStream::connect_timeout(&door, KNOCK).is_ok();
            Ok(if taken { EXIT_DONE } else { EXIT_FAILED })
        }
        Probe::Begin { target, count, proxy, site } => {
            super::print_json(&client::begin(dial::Way::of(proxy, site), target, count))
        }
        Probe::Name { resolver, proxy, site } => {
            let resolver = std::net::SocketAddr::new(resolver, dns::PORT);
            super::print_json(&[client::by_name(resolver, dial::Way::of(proxy, site), 1)])
        }
        Probe::Names { server, prefix, few, wait } => match prefix {
            Some(prefix) if !wait => super::print_json(&names::run(server, prefix, few)),
            _ => Ok(if names::wait(server) { EXIT_DONE } else { EXIT_FAILED }),
        },
        Probe::Start { target, ask, on, argv } => {
            match start::measure(target, &argv, ask.as_deref(), on.as_ref()) {
                Ok(started) => super::print_json(&started),
                Err(why) => {
                    crate::note!("fordway-lab probe start: {why}");
                    Ok(EXIT_FAILED)
                }
            }
        }
    }
}

/// Sends or receives small packets inside a namespace.
pub(super) fn tester(tester: Tester) -> Result<u8> {
    match tester {
        Tester::Datagrams { target, source, seconds, rate, size } => {
            let length = duration(seconds)?;
            let wanted = datagrams::Wanted { target, source, length, rate, size };
            let sent = datagrams::send(&wanted).map_err(LabError::file("datagrams"))?;
            super::print_json(&sent)
        }
        Tester::Background { target, source, seconds, rate, flows, size } => {
            let length = duration(seconds)?;
            let wanted = background::Wanted { target, source, length, rate, flows, size };
            super::print_json(&background::send(&wanted).map_err(LabError::file("background"))?)
        }
        Tester::Exchange { target, request, host, up, connections, requests, limit } => {
            let limit = duration(limit)?;
            let wanted =
                exchange::Wanted { target, request, host, up, connections, requests, limit };
            super::print_json(&exchange::measure(&wanted).map_err(LabError::file("exchange"))?)
        }
        Tester::Echo { target, rate, count, patience } => {
            let patience = Duration::from_millis(patience);
            let wanted = echo::Wanted { target, rate, count, patience };
            super::print_json(&echo::measure(&wanted).map_err(LabError::file("echo"))?)
        }
        Tester::Pulses { target, connections, seconds } => {
            let wanted = pulses::Wanted {
                target,
                connections,
                // A slow machine is given the same work in more time.
                period: process::patience(Duration::from_millis(20)),
                every: process::patience(Duration::from_millis(10)),
                datagrams: process::patience(Duration::from_millis(2)),
                length: duration(seconds)?,
            };
            super::print_json(&pulses::measure(&wanted).map_err(LabError::file("pulses"))?)
        }
        Tester::PulseServe { port } => {
            pulses::serve(port).map_err(LabError::file("pulse server"))?;
            Ok(EXIT_DONE)
        }
        Tester::SendFrames { device, frame, hosts, at_target, limit } => {
            let sent = frame.iter().map(|hex| octets(hex)).collect::<Result<Vec<_>>>()?;
            let hosts = frames::Hosts { count: hosts, at_target };
            let used =
                frames::send(&device, &sent, hosts, limit).map_err(LabError::file(device))?;
            super::print_json(&used)
        }
        Tester::Flows {
            ends: Ends { device, own, next, far, far_device },
            far_v4,
            source,
            target,
            sources,
            flows: most,
            tcp,
            echo,
        } => {
            let (own, next) = (link_address(&own)?, link_address(&next)?);
            let walk = flows::Walk::new(source, target, sources, most)?;
            let packet = if tcp { flows::Packet::Syn } else { flows::Packet::Datagram };
            let ends = flows::Ends { device, own, next, far, far_device, far_v4 };
            flows::Tester::open(ends, walk, most, packet, echo)
                .and_then(|mut tester| tester.serve(std::io::stdin().lock(), std::io::stdout()))
                .map_err(LabError::file("flows"))?;
            Ok(EXIT_DONE)
        }
        Tester::Trials { stand } => {
            stand.serve(link_address, std::io::stdin().lock(), std::io::stdout())?;
            Ok(EXIT_DONE)
        }
        Tester::DnsClient { target, prefix, sockets } => {
            dns::client::Client::open(target, sockets, prefix_of(prefix))
                .and_then(|mut client| {
                    client.serve(std::io::stdin().lock(), std::io::stdout().lock())
                })
                .map_err(LabError::file("DNS client"))?;
            Ok(EXIT_DONE)
        }
        Tester::DnsServe { own, threads, v4, v6 } => {
            let server = dns::message::Server { v4, v6 };
            dns::authority::serve(&own, server, threads).map_err(LabError::file("DNS server"))?;
            Ok(EXIT_DONE)
        }
        Tester::WebServe { port } => {
            web::server::serve(port).map_err(LabError::file("web server"))?;
            Ok(EXIT_DONE)
        }
        Tester::Sessions { literal, resolver, known, series, count, objects, size, port } => {
            let way = match (literal, resolver, known) {
                (Some(address), ..) => Way::Literal(address),
                (None, Some(server), true) => Way::Known(server),
                (None, Some(server), false) => Way::Fresh(server),
                (None, None, _) => {
                    return Err(LabError::Usage("neither --literal nor --resolver".into()));
                }
            };
            super::print_json(&measure(&Wanted { way, port, series, count, objects, size }))
        }
        Tester::ReceiveFrames { device, v4, sized, port, seconds } => {
            let length = duration(seconds)?;
            let received = frames::receive(&device, v4, port, sized, length)
                .map_err(LabError::file(device))?;
            super::print_json(&received)
        }
    }
}

/// The 96 bits of a prefix.
fn prefix_of(address: std::net::Ipv6Addr) -> [u8; 12] {
    let mut prefix = [0; 12];
    prefix.copy_from_slice(&address.octets()[..12]);
    prefix
}

fn duration(seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|e| LabError::Usage(format!("{seconds} s: {e}")))
}

fn link_address(hex: &str) -> Result<[u8; 6]> {
    let bad = |_| LabError::Usage(format!("{hex} is no link address of six octets"));
    octets(hex)?.try_into().map_err(bad)
}

fn octets(hex: &str) -> Result<Vec<u8>> {
    let bad = || LabError::Usage("the frame is not hexadecimal".into());
    if !hex.is_ascii() || !hex.len().is_multiple_of(2) {
        return Err(bad());
    }
    let pair = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).map_err(|_| bad());
    (0..hex.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_a_man_page_keep_their_lines() {
        let page = "a\n.SH EXTRA\nExamples:\n  x y\n  z\n\nExit status: 0 done.\n.SH VERSION\nv1\n";
        let told =
            "a\n.SH EXAMPLES\n.nf\n  x y\n  z\n.fi\n.SH EXIT STATUS\n0 done.\n.SH VERSION\nv1\n";
        assert_eq!(with_examples(page), told);
        assert_eq!(
            with_examples("a\n.SH EXTRA\nExamples:\n  x\n"),
            "a\n.SH EXAMPLES\n.nf\n  x\n.fi\n"
        );
        assert_eq!(with_examples("a\n"), "a\n");
    }

    #[test]
    fn frames_are_read_from_hexadecimal() {
        assert_eq!(octets("00ff10").unwrap(), [0, 255, 16]);
        assert!(octets("0").is_err() && octets("zz").is_err() && octets("é").is_err());
    }
}
