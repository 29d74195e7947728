//! `fordway export`: the configuration of other programs that do what the file's `[[advertise]]` and
//! `[dns64]` say.
//!
//! What a program can't do becomes a comment in its configuration.

mod bind;
mod dnsmasq;
mod kea;
mod radvd;
mod unbound;

use std::net::Ipv6Addr;

use fordway_config::{Config, Dns64, load};
use fordway_daemon::failure::Failure;
use fordway_daemon::output;
use fordway_daemon::settings::{self, prefixes};
use fordway_router::{Device, Prefixes, Rdnss};
use fordway_xlat::addr::Pool6;
use ipnet::Ipv6Net;

use crate::cli::{ExportArgs, Program};

/// What other programs are to do.
struct Plan {
    devices: Vec<Device>,
    dns64: Option<Dns64>,
    /// Prefixes of synthesised addresses where no policy says otherwise.
    pool6: Vec<Pool6>,
}

pub(crate) fn run(args: &ExportArgs) -> Result<(), Failure> {
    let config = load(&args.config)?.config;
    let plan = Plan::new(&config);
    let (needs_devices, text) = match args.program {
        Program::Radvd => (true, radvd::write(&plan, version(args)?)),
        Program::Dnsmasq => (true, dnsmasq::write(&plan)),
        Program::Kea => (true, kea::write(&plan)?),
        Program::Unbound => (false, unbound::write(&plan, plan.dns64()?)),
        Program::Bind => (false, bind::write(&plan, plan.dns64()?)),
    };
    if needs_devices && plan.devices.is_empty() {
        return Err(missing("[[advertise]]"));
    }
    output::print(&text)
}

impl Plan {
    fn new(config: &Config) -> Plan {
        let devices = settings::router(config).map(|settings| settings.devices).unwrap_or_default();
        Plan { devices, dns64: config.dns64.clone(), pool6: prefixes(config) }
    }

    fn dns64(&self) -> Result<&Dns64, Failure> {
        self.dns64.as_ref().ok_or_else(|| missing("[dns64]"))
    }
}

fn missing(section: &str) -> Failure {
    Failure::failed(format!("the file has no {section}: there is nothing to export"))
}

/// Major and minor number of the version; the greatest there can be if none is given.
fn version(args: &ExportArgs) -> Result<(u32, u32), Failure> {
    let Some(text) = &args.for_version else {
        return Ok((u32::MAX, 0));
    };
    let mut numbers = text.split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(Failure::usage(format!("{text} is no version"), "write it as 2.20")),
    }
}

/// The DNS servers of a device that can be written down, and whether there may be others: the router
/// itself would take an address that the device has.
fn servers(device: &Device) -> (Vec<Ipv6Addr>, bool) {
    match &device.rdnss {
        Rdnss::Listed(listed) => (listed.clone(), false),
        Rdnss::Serving(serving) => {
            let known = |it: &&Ipv6Addr| !it.is_unspecified();
            (
                serving.iter().filter(known).copied().collect(),
                serving.iter().any(std::net::Ipv6Addr::is_unspecified),
            )
        }
    }
}

/// Lines with indentation.
#[derive(Default)]
struct Text {
    lines: String,
    depth: usize,
}

impl Text {
    /// A configuration whose first lines say where it is from, each behind `comment`.
    fn new(comment: &str, program: &str) -> Text {
        let mut text = Text::default();
        text.line(format!("{comment} Written by fordway export {program}."));
        text
    }

    fn line(&mut self, line: impl AsRef<str>) {
        self.lines.extend(std::iter::repeat_n("    ", self.depth));
        self.lines.push_str(line.as_ref());
        self.lines.push('\n');
    }

    /// Lines between an opening and a closing one.
    fn block(&mut self, open: impl AsRef<str>, close: &str, inner: impl FnOnce(&mut Text)) {
        self.line(open);
        self.depth += 1;
        inner(self);
        self.depth -= 1;
        if !close.is_empty() {
            self.line(close);
        }
    }
}

/// `on` or `off`.
fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Items behind each other.
fn joined<T: ToString>(items: impl IntoIterator<Item = T>, between: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(between)
}

/// A name as the programs write it, without the last dot.
fn name(name: &hickory_proto::rr::Name) -> String {
    name.to_ascii().trim_end_matches('.').to_owned()
}

/// Prefixes of a device's link that stand in the file.
fn known_prefixes(device: &Device) -> impl Iterator<Item = Ipv6Net> {
    let listed = match &device.prefixes {
        Prefixes::Listed(listed) => listed.as_slice(),
        Prefixes::OfDevice => &[],
    };
    listed.iter().map(Ipv6Net::trunc)
}
