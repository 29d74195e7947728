//! Warnings of programs that are attached as configured but do not work as intended.

use std::io;

use fordway_bpf::{Accelerator, Error, Kind, Place, Totals};

use fordway_control::KernelWarning;

/// Frames that programs in front of routing have let by without taking any: then they are at the wrong device, most likely.
const MANY: u64 = 1000;

/// What programs in front of routing have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The translator's.
    taken: u64,
    /// Frames for other link-layer addresses.
    elsewhere: u64,
    tagged: u64,
}

impl Seen {
    pub(super) fn of(totals: &Totals) -> Seen {
        let translated: u64 = totals.directions.iter().map(|direction| direction.packets).sum();
        let left: u64 = totals.left_to_stack.iter().sum();
        let taken = translated + left + totals.drops.iter().sum::<u64>();
        Seen { taken, elsewhere: totals.elsewhere, tagged: totals.tagged }
    }

    /// What was seen since the last packet was taken, if that was much.
    fn warning(self, when_taken: Seen, devices: &str) -> Option<KernelWarning> {
        let elsewhere = self.elsewhere.saturating_sub(when_taken.elsewhere);
        let tagged = self.tagged.saturating_sub(when_taken.tagged);
        if self.taken != when_taken.taken || elsewhere + tagged < MANY {
            return None;
        }
        Some(KernelWarning {
            about: "elsewhere".to_owned(),
            text: format!(
                "the programs at {devices} take nothing: {elsewhere} frames for other link-layer addresses and {tagged} \
                 with a VLAN tag went by"
            ),
            advice: "name the device that has the address, such as the VLAN's interface, or a macvlan with attach = \
                     \"ingress\""
                .to_owned(),
        })
    }
}

/// What programs have seen, and what they had seen when they took something last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Front {
    when_taken: Seen,
}

impl Front {
    /// Takes notice of what is taken.
    pub(super) fn look(&mut self, now: Seen) {
        if now.taken != self.when_taken.taken {
            self.when_taken = now;
        }
    }
}

/// All there is to warn of. `name`: of a device; `objection`: to how packets are forwarded.
pub(super) fn warnings(
    accelerator: &Accelerator,
    front: Front,
    name: &mut impl FnMut(u32) -> String,
    objection: Option<KernelWarning>,
) -> Vec<KernelWarning> {
    let attachments = accelerator.attachments();
    let mut all: Vec<KernelWarning> = Vec::new();
    for generic in attachments.iter().filter(|it| it.kind == Kind::XdpGeneric) {
        let device = name(generic.ifindex);
        let why = generic.refusal.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        all.push(KernelWarning {
            about: format!("generic {device}"),
            text: format!(
                "the driver of {device} does not run XDP{why}: the program runs in front of the stack, which is slower than \
                 at the ingress"
            ),
            advice: format!(
                "use attach = \"ingress\"; or see whether ethtool -K {device} lro off, fewer channels (ethtool -L) or a \
                 smaller MTU let the driver take it"
            ),
        });
    }
    all.extend(order(accelerator.ahead(), name));
    all.extend(objection);
    let in_front = attachments.iter().filter(|it| it.place == Place::Xdp);
    let in_front = in_front.chain(attachments.iter().filter(|it| it.place == Place::Ingress));
    let devices: Vec<String> = in_front.map(|it| name(it.ifindex)).collect();
    if let Some(now) = seen(accelerator).ok().flatten() {
        all.extend(now.warning(front.when_taken, &devices.join(", ")));
    }
    all
}

/// What the programs in front of routing have seen, if there are some.
pub(super) fn seen(accelerator: &Accelerator) -> Result<Option<Seen>, Error> {
    Ok(accelerator.front_totals()?.map(|totals| Seen::of(&totals)))
}

/// Who comes first at the egress of the uplink.
fn order(
    ahead: io::Result<Vec<(u32, Vec<String>)>>,
    name: &mut impl FnMut(u32) -> String,
) -> Vec<KernelWarning> {
    let warning = |about, text| {
        KernelWarning {
        about,
        text,
        advice: "see who they are (bpftool net, tc filter show), and start the translator anew after them: it attaches in \
                 front"
            .to_owned(),
    }
    };
    match ahead {
        Ok(found) => found
            .into_iter()
            .map(|(device, programs)| {
                let device = name(device);
                let programs = programs.join(", ");
                let text = format!(
                    "at the egress of {device}, {programs} come before the program: what they let pass leaves untranslated"
                );
                warning(format!("order {device}"), text)
            })
            .collect(),
        Err(error) => {
            let text = format!("the order of programs at the egress can't be told: {error}");
            vec![warning("order".to_owned(), text)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_nothing_while_much_goes_by_is_warned_of() {
        let mut front = Front::default();
        let told = |front: Front, seen: Seen| seen.warning(front.when_taken, "eth0").is_some();
        let idle = Seen { elsewhere: 500, ..Seen::default() };
        front.look(idle);
        assert!(!told(front, idle), "not many yet");
        let tagged = Seen { tagged: 500, ..idle };
        front.look(tagged);
        assert!(told(front, tagged));
        let at_work = Seen { taken: 1, ..tagged };
        front.look(at_work);
        assert!(!told(front, at_work));
        // It had worked before.
        let moved = Seen { elsewhere: 1500, ..at_work };
        front.look(moved);
        assert!(told(front, moved));
        let busy = Seen { taken: 2, elsewhere: 100_000, ..at_work };
        assert!(!told(front, busy), "others share the link");
    }

    #[test]
    fn who_comes_first_is_told() {
        let mut name = |index: u32| format!("eth{index}");
        assert_eq!(order(Ok(Vec::new()), &mut name), []);
        let found = order(Ok(vec![(2, vec!["program 7".to_owned()])]), &mut name);
        assert_eq!(found[0].about, "order eth2");
        assert!(found[0].text.contains("program 7 come before"), "{}", found[0].text);
        let unknown = order(Err(io::ErrorKind::PermissionDenied.into()), &mut name);
        assert!(unknown[0].text.contains("can't be told"), "what was not checked has not passed");
    }
}
