//! What has to go together in one translator.

use super::Translator;
use crate::diagnostic::Sink;
use crate::engine::{Attach, Engine};
use crate::findings::duplicates;
use crate::keys::Read;
use crate::mode::Mode;

/// Devices that one translator can be attached to.
const MAX_DEVICES: usize = 64;

/// Holds `engine`, `attach`, `devices` and `measure` against each other.
pub(crate) fn engine(draft: &Read<Translator>, sink: &mut Sink) {
    let Read { value: translator, at, .. } = draft;
    if let Some(span) = at.key("attach")
        && let Some((message, help)) = cannot_attach(translator)
    {
        sink.error(span, message, help);
    }
    if let Some(span) = at.key("measure")
        && translator.measure
        && translator.engine == Engine::User
    {
        let message = "`measure` has no effect: only the kernel engine takes the time";
        sink.warn(span, message, "leave it out");
    }
    let devices = at.each("devices", &translator.devices);
    if let Some(span) = at.key("devices").filter(|_| !(1..=MAX_DEVICES).contains(&devices.len())) {
        let message =
            format!("`devices`: {} devices; 1 to {MAX_DEVICES} are possible", devices.len());
        let help = "write a list of interface names such as devices = [\"eth0\", \"eth1\"]";
        sink.error(span, message, help);
    }
    duplicates("devices", &devices, sink);
}

/// Why the attach point can't be, and what to write.
fn cannot_attach(translator: &Translator) -> Option<(&'static str, &'static str)> {
    let Translator { mode, attach, engine, .. } = translator;
    let is_clat = matches!(mode, Mode::Clat(_));
    let found = match attach {
        Attach::Uplink if !is_clat && !mode.is_client() => (
            "`attach`: \"uplink\" belongs to mode clat and to a softwire's client; elsewhere routes decide what is \
             translated",
            match mode {
                Mode::Softwire(_) => "write attach = \"interface\", or \"ingress\" with devices",
                _ => "write attach = \"interface\", or \"ingress\" or \"xdp\" with devices",
            },
        ),
        Attach::Ingress if is_clat => (
            "`attach`: \"ingress\" is for gateways",
            "write attach = \"uplink\", which does the same for a CLAT",
        ),
        Attach::Xdp if !mode.translates() => (
            "`attach`: softwires are attached at the interface, at the ingress, or a client's at the uplink",
            "write attach = \"interface\", or \"ingress\" with devices",
        ),
        Attach::Uplink | Attach::Ingress | Attach::Xdp if *engine == Engine::User => (
            "`attach`: this attach point is the kernel engine's, and engine is \"user\"",
            "write attach = \"interface\", or engine = \"auto\"",
        ),
        _ => return None,
    };
    Some(found)
}
