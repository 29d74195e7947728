//! Which engine carries the packets, and where it takes them.

use toml::Spanned;

use crate::diagnostic::{Diagnostic, Sink};
use crate::section::Section;
use crate::sections::set;
use crate::types::{Attach, Engine, Translator};
use crate::value;

pub(crate) const ENGINES: [(&str, Engine); 3] =
    [("auto", Engine::Auto), ("kernel", Engine::Kernel), ("user", Engine::User)];

pub(crate) const ATTACHES: [(&str, Attach); 5] = [
    ("auto", Attach::Auto),
    ("interface", Attach::Interface),
    ("uplink", Attach::Uplink),
    ("ingress", Attach::Ingress),
    ("xdp", Attach::Xdp),
];

/// Packets from IPv4 that programs leave to the user engine for one reason, per second and processor. The user engine
/// takes some hundred thousand of all reasons on each of its queues.
pub(crate) const PASS_RATE: u32 = 10_000;

/// Devices that one translator can be attached to.
const MAX_DEVICES: usize = 64;

/// What has an end of its own towards the IPv6 network, and what stands between networks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A CLAT.
    Clat,
    /// A softwire's client.
    Client,
    /// A tunnel end point.
    Tep,
    /// All else.
    Gateway,
}

/// Reads `engine`, `attach`, `devices`, `measure` and `pass_rate`, and holds them against each other.
pub(crate) fn read(
    section: &mut Section<'_, '_>,
    sink: &mut Sink,
    place: Place,
    translator: &mut Translator,
) {
    set(&mut translator.engine, section.read(sink, "engine", |v| value::choice(v, &ENGINES)));
    let attach = section.read(sink, "attach", |v| value::choice(v, &ATTACHES));
    if let Some(attach) = &attach {
        check_attach(attach, translator.engine, place, sink);
    }
    set(&mut translator.attach, attach);
    read_devices(section, sink, translator);
    let measure = section.read(sink, "measure", value::boolean);
    if let Some(measure) = &measure
        && *measure.get_ref()
        && translator.engine == Engine::User
    {
        let message = "`measure` has no effect: only the kernel engine takes the time";
        sink.push(Diagnostic::warning(measure.span(), message).help("leave it out"));
    }
    set(&mut translator.measure, measure);
    if matches!(place, Place::Clat | Place::Client) {
        let why = "this key is for gateways, to which strangers in the IPv4 network send";
        section.refuse(sink, "pass_rate", why, "leave it out");
        translator.pass_rate = None;
    } else {
        set(&mut translator.pass_rate, section.read(sink, "pass_rate", value::rate));
    }
}

fn check_attach(attach: &Spanned<Attach>, engine: Engine, place: Place, sink: &mut Sink) {
    let (message, help) = match attach.get_ref() {
        Attach::Uplink if matches!(place, Place::Gateway | Place::Tep) => (
            "`attach`: \"uplink\" belongs to mode clat and to a softwire's client; elsewhere routes decide what is \
             translated",
            match place {
                Place::Tep => "write attach = \"interface\", or \"ingress\" with devices",
                _ => "write attach = \"interface\", or \"ingress\" or \"xdp\" with devices",
            },
        ),
        Attach::Ingress if place == Place::Clat => (
            "`attach`: \"ingress\" is for gateways",
            "write attach = \"uplink\", which does the same for a CLAT",
        ),
        Attach::Xdp if matches!(place, Place::Client | Place::Tep) => (
            "`attach`: softwires are attached at the interface, at the ingress, or a client's at the uplink",
            "write attach = \"interface\", or \"ingress\" with devices",
        ),
        Attach::Uplink | Attach::Ingress | Attach::Xdp if engine == Engine::User => (
            "`attach`: this attach point is the kernel engine's, and engine is \"user\"",
            "write attach = \"interface\", or engine = \"auto\"",
        ),
        _ => return,
    };
    sink.push(Diagnostic::error(attach.span(), message).help(help));
}

fn read_devices(section: &mut Section<'_, '_>, sink: &mut Sink, translator: &mut Translator) {
    let help = "write a list of interface names such as devices = [\"eth0\", \"eth1\"]";
    if !matches!(translator.attach, Attach::Ingress | Attach::Xdp) {
        let why = "this key belongs to attach = \"ingress\" and attach = \"xdp\"";
        section.refuse(sink, "devices", why, "leave it out, or write attach = \"ingress\"");
        return;
    }
    let Some(devices) =
        section.require(sink, "devices", help, |v| value::list(v, help, value::name))
    else {
        return;
    };
    let span = devices.span();
    let devices = devices.into_inner();
    if devices.is_empty() || devices.len() > MAX_DEVICES {
        let message =
            format!("`devices`: {} devices; 1 to {MAX_DEVICES} are possible", devices.len());
        sink.push(Diagnostic::error(span, message).help(help));
    }
    for (index, device) in devices.iter().enumerate() {
        let earlier = devices[..index].iter().find(|it| it.get_ref() == device.get_ref());
        if let Some(earlier) = earlier {
            let message = format!("`devices`: {} is listed twice", device.get_ref());
            let diagnostic = Diagnostic::error(device.span(), message);
            sink.push(diagnostic.related(earlier.span(), "here first").help("leave one out"));
        }
    }
    translator.devices = devices.into_iter().map(Spanned::into_inner).collect();
}
