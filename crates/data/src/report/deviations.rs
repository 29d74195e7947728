//! Where a run departs from its study and from the standards.

use fordway_procedures::profile::Profile;
use fordway_procedures::traffic::Limit;

use crate::artefacts::Run;
use crate::spec::{Experiment, Group, LoadSpec, Metric};

/// Octets of the frames of RFC 9693.
const SMALLEST: u16 = 64;

/// All that apply, in words.
pub(super) fn deviations(run: &Run) -> Vec<String> {
    let mut all: Vec<String> = [
        "veth has no line rate: 100 % is the calibrated ceiling of the generator, and every value \
         within a factor 2 of it is a lower bound (≥). A ratio to such a base is an upper bound.",
        "Sender, receiver, forwarding and translator share this machine's processors, as in the \
         study's single-host set-up; on separate hosts a translator has more for itself.",
        "The study's host in the middle is a namespace here, so that the machine's own network \
         stays untouched. Limits on ICMP errors are lifted in the lab's namespaces.",
        "The IPv4 route into every user-space CLAT has MTU 1480 (Fordway's own 1500: it cuts \
         by itself) and MSS 1440, as the 20 octets longer IPv6 header asks; the study left the defaults.",
        "A deployment's RTT value is the mean of the middle half of its replies; tests compare \
         deployments, not replies. A percentile is printed only with at least ten values beyond it.",
        "Small packets are one flow with one pair of ports. Their rate is what arrives while the \
         sender gives its most, not the highest rate without loss.",
    ]
    .map(str::to_owned)
    .into();
    if run.experiment.metrics.iter().any(|m| m.group() == Some(Group::Sessions)) {
        all.push(
            "New flows come in a closed loop of 256, from 256 addresses that each send to a port of \
             their own; no rate without loss is searched for (RFC 9693). Limits of the kernel's \
             connection tracking are raised for NAT44 where the sessions would not fit."
                .into(),
        );
    }
    let of = |group| run.experiment.metrics.iter().any(|m| m.group() == Some(group));
    if of(Group::Ab) {
        all.push(
            "Pages by ab: one process on one processor, which native paths and kernel translators may well outrun: \
             rates near its own ceiling at that point are lower bounds, and times there upper bounds. The server is nginx; like Apache by default it closes a \
             connection after a hundred requests. Names are not part of what ab times, and addresses are given."
                .into(),
        );
    }
    if of(Group::Rfc9411) {
        all.push(
            "RFC 9411: one client and one server, each with one address; HTTP/1.1 without TLS. Generators are closed loops: \
             wrk with 32 connections at once in place of a search for the highest load, hey with 16 that send at a steady \
             pace. Times of hey are rounded to 0.1 ms before they are averaged. A KByte is 1,024 octets."
                .into(),
        );
    }
    if of(Group::Dns) {
        all.push(
            "DNS64: tester and server share this machine; a server with fewer threads than there are \
             processors is bound to the first of them, the tester to the others. Short trials lead \
             the search, and one of full length must pass at its end; trials below 15 s have a time \
             limit of a fifteenth of their length instead of 1 s (RFC 8219 section 9.2)."
                .into(),
        );
    }
    if of(Group::Waiting) {
        all.push(
            "Sessions and pages: the name server of paths without a translator is Unbound, which \
             only forwards there. The large echo of the gate has 1,260 octets through two translators \
             and 1,400 elsewhere: of a longer one the first makes fragments, which the second drops, \
             both by rule (RFC 7915 sections 4 and 4.2)."
                .into(),
        );
    }
    all.extend(departures(&run.experiment, of(Group::Rfc8219), of(Group::Rfc9693)));
    all.extend(run.experiment.loads.iter().map(|load| own_load(&run.experiment, load)));
    if run.experiment.run().is_ok_and(|r| r.profile == "quick") {
        all.push(
            "Quick profile: flows of seconds instead of 30 s and pings in fast succession instead \
             of one a second; a path that is kept warm answers faster."
                .into(),
        );
    }
    all
}

/// Where lengths, repetitions and traffic depart from RFC 8219 and RFC 9693, where these are measured. A block is a repetition.
fn departures(experiment: &Experiment, rfc8219: bool, rfc9693: bool) -> Vec<String> {
    let Ok(run) = experiment.run() else { return Vec::new() };
    let Some(profile) = experiment.profile.get(&run.profile) else { return Vec::new() };
    if !rfc8219 && !rfc9693 {
        return Vec::new();
    }
    let mut own = profile.rfc();
    for repetitions in [
        &mut own.throughput.repetitions,
        &mut own.latency.repetitions,
        &mut own.variation.repetitions,
        &mut own.back_to_back.repetitions,
        &mut own.recovery.repetitions,
        &mut own.reset.repetitions,
        &mut own.stateful.repetitions,
    ] {
        *repetitions = run.blocks;
    }
    if !rfc8219 {
        // Of RFC 8219, test phase 2 runs throughput and latency, with frames of the smallest size (RFC 9693 section 4.7).
        let Profile { waits, throughput, latency, stateful, .. } = own;
        let sizes = vec![SMALLEST];
        own = Profile { sizes, waits, throughput, latency, stateful, ..Profile::strict() };
    }
    let all = own.departures(Limit::Calibrated).into_iter();
    all.filter(|it| rfc9693 || !it.section.starts_with("RFC 9693"))
        .map(|it| format!("{}: {}.", it.section, it.text))
        .collect()
}

/// What a load of the experiment's own runs, and where its values stand.
fn own_load(experiment: &Experiment, load: &LoadSpec) -> String {
    let values = experiment.metrics.iter().filter_map(|metric| match metric {
        Metric::Own(own) if own.spec().load.spec() == load => Some(&own.spec().metric),
        _ => None,
    });
    let values: Vec<String> = values
        .map(|metric| {
            let place = metric.json.as_ref().or(metric.regex.as_ref());
            format!("{} ({})", metric.label, place.map_or("", String::as_str))
        })
        .collect();
    let server = match load.server.is_empty() {
        true => String::new(),
        false => format!(", with `{}` at the server", load.server.join(" ")),
    };
    let about = load.about.as_ref().map_or_else(String::new, |about| format!(" {about}"));
    let client = load.client.join(" ");
    format!(
        "Load {} is the experiment's own: `{client}` at the client{server}. Values: {}.{about}",
        load.name,
        values.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::RunSpec;

    #[test]
    fn a_quick_run_of_rfc_8219_names_each_departure_and_a_strict_one_few() {
        let of = |name: &str, profile: &str, blocks: u32| {
            let mut experiment = Experiment::find(name).unwrap();
            experiment.run = Some(RunSpec { profile: profile.into(), blocks, ..RunSpec::bare() });
            let group = |group| experiment.metrics.iter().any(|m| m.group() == Some(group));
            departures(&experiment, group(Group::Rfc8219), group(Group::Rfc9693))
        };
        let (quick, strict) = (of("rfc8219", "quick", 1), of("rfc8219", "strict", 20));
        let said = |all: &[String], section: &str| all.iter().any(|it| it.starts_with(section));
        assert!(said(&quick, "RFC 8219 section 7.2: latency streams last"), "{quick:?}");
        assert!(said(&quick, "RFC 2544 section 12") && quick.len() > strict.len() + 8, "{quick:?}");
        assert!(!said(&strict, "RFC 8219 section 7.2") && !said(&strict, "RFC 9693"), "{strict:?}");
        let stateful = of("rfc9693", "quick", 1);
        assert!(said(&stateful, "RFC 9693"), "{stateful:?}");
        // Latency over a filled table is RFC 8219's; what is not measured is not departed from.
        let strict = of("rfc9693", "strict", 10);
        assert!(!said(&strict, "RFC 9693"), "{strict:?}");
        let latency = "RFC 8219 section 7.2: latency: 10 instead of 20 repetitions.";
        assert!(said(&strict, latency), "{strict:?}");
        assert!(said(&strict, "RFC 8219 section 5.1.1: frame sizes are [64] only"), "{strict:?}");
        for section in ["RFC 8219 section 7.3", "RFC 8219 section 10", "RFC 2544 section 26"] {
            assert!(!said(&stateful, section), "{stateful:?}");
        }
        assert!(of("nat64", "quick", 1).is_empty());
    }
}
