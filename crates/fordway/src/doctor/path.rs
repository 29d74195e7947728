//! Checks the path through the translator: whether it answers, and which packet sizes pass.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use fordway_xlat::addr::Pool6;

use super::finding::Findings;
use super::probe::{Answer, Kind, Prober};

/// Routers that are looked for on the way.
const HOPS: u8 = 16;

/// Code of an ICMPv6 Destination Unreachable (RFC 4443 section 3.1).
const CODES: [&str; 7] = [
    "no route to it",
    "administratively prohibited",
    "beyond the scope of the source",
    "address unreachable",
    "port unreachable",
    "the source failed a policy",
    "the route rejects it",
];

/// What an address behind a translator answers.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// The address itself.
    Reached,
    /// An IPv4 node whose address is in the prefix: a translator works.
    Translated(Ipv6Addr),
    /// A router refused.
    Refused(Ipv6Addr, u8),
    /// No answer after this router, if a router answered.
    Silent(Option<Ipv6Addr>),
}

/// Sends to `target` behind `prefix`. `mtu`: the largest packet that may leave here, in octets.
pub(super) fn check(
    prober: &mut Prober,
    prefix: Pool6,
    target: Ipv4Addr,
    mtu: u32,
    findings: &mut Findings,
) {
    let to = prefix.embed(target);
    let way = match walk(prober, to) {
        Ok(answers) => judge(prefix, to, &answers),
        Err(error) => {
            return findings.bad(
                "nat64",
                format!("cannot send to {to}: {error}"),
                format!("ip -6 route get {to} says which route is missing"),
            );
        }
    };
    match way {
        Way::Reached => {
            findings.good("nat64", format!("{target} answers as {to}"));
            check_size(prober, to, mtu, findings);
        }
        Way::Translated(router) => findings.good(
            "nat64",
            format!("{router}, behind the translator, answers for {target} (which does not)"),
        ),
        Way::Refused(router, code) => {
            let why = CODES.get(usize::from(code)).copied().unwrap_or("for an unknown reason");
            findings.bad(
                "nat64",
                format!("{router} refuses {to}: {why}"),
                "the router that answers has no route to the translator, or a filter; ask its operator, or \
                 announce the prefix's route",
            );
        }
        Way::Silent(last) => findings.bad(
            "nat64",
            match last {
                Some(router) => format!("nothing comes back from {to}; the last to answer is {router}"),
                None => format!("nothing comes back from {to}, not even from a router"),
            },
            "either the translator does not run, or its way to IPv4 or back is missing, or the target drops \
             pings: try another --target; fordway doctor -c FILE on the gateway says more",
        ),
    }
}

/// An echo request for each hop at once.
fn walk(prober: &mut Prober, to: Ipv6Addr) -> io::Result<Vec<Answer>> {
    let mut answers = Vec::new();
    // The first packets may get lost while neighbours are being asked for.
    for _ in 0..3 {
        let hops = 1..=HOPS;
        for hop_limit in hops {
            prober.send(to, hop_limit, 0)?;
        }
        let is_reply = |answer: &Answer| answer.kind == Kind::Reply;
        answers.extend(prober.gather(Duration::from_secs(1), |all| all.iter().any(is_reply))?);
        if answers.iter().any(|answer| answer.kind != Kind::HopLimit) {
            break;
        }
    }
    Ok(answers)
}

fn judge(prefix: Pool6, to: Ipv6Addr, answers: &[Answer]) -> Way {
    if answers.iter().any(|answer| answer.kind == Kind::Reply && answer.from == to) {
        return Way::Reached;
    }
    if let Some(answer) = answers.iter().find(|answer| prefix.contains(answer.from)) {
        return Way::Translated(answer.from);
    }
    let refusal = answers.iter().find_map(|answer| match answer.kind {
        Kind::Unreachable(code) => Some((answer.from, code)),
        _ => None,
    });
    match refusal {
        Some((from, code)) => Way::Refused(from, code),
        // Requests leave with growing hop limits, so the farthest router has the latest number.
        None => Way::Silent(answers.iter().max_by_key(|it| it.sequence).map(|it| it.from)),
    }
}

/// Path MTU discovery by hand: the largest packet arrives, or a router reports its MTU (RFC 8201).
fn check_size(prober: &mut Prober, to: Ipv6Addr, mtu: u32, findings: &mut Findings) {
    let mut size = mtu;
    // Each router on the way may be narrower than the one before.
    for _ in 0..8 {
        match prober.ask(to, size as usize) {
            Ok(Some(Answer { kind: Kind::Reply, .. })) => {
                return findings.good("mtu", format!("packets of {size} octets pass both ways"));
            }
            Ok(Some(Answer { kind: Kind::TooBig(smaller), .. }))
                if (1280..size).contains(&smaller) =>
            {
                size = smaller;
            }
            Ok(_) => {
                return findings.bad(
                    "mtu",
                    format!("packets of {size} octets vanish without an error: a black hole"),
                    "let ICMPv6 Packet Too Big and ICMPv4 fragmentation needed pass on the way (RFC 4890 \
                     section 4.3.1), or lower the MTU that the network announces",
                );
            }
            Err(error) => return findings.skipped("mtu", format!("cannot send: {error}")),
        }
    }
    findings.warning(
        "mtu",
        format!("the path MTU keeps changing; the last was {size}"),
        "a router on the way announces MTUs that it does not keep",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(from: &str, sequence: u16, kind: Kind) -> Answer {
        Answer { from: from.parse().unwrap(), sequence, kind }
    }

    #[test]
    fn who_answers_says_how_far_it_goes() {
        let prefix = Pool6::new("64:ff9b::/96".parse().unwrap()).unwrap();
        let to = prefix.embed(Ipv4Addr::new(198, 51, 100, 1));
        let near = answer("2001:db8::1", 1, Kind::HopLimit);
        let far = answer("2001:db8::2", 2, Kind::HopLimit);
        let inside = answer("64:ff9b::c000:201", 3, Kind::HopLimit);
        let reply = answer("64:ff9b::c633:6401", 4, Kind::Reply);
        let refusal = answer("2001:db8::2", 2, Kind::Unreachable(0));
        assert_eq!(judge(prefix, to, &[near, inside, reply]), Way::Reached);
        assert_eq!(judge(prefix, to, &[near, inside]), Way::Translated(inside.from));
        assert_eq!(judge(prefix, to, &[near, refusal]), Way::Refused(refusal.from, 0));
        assert_eq!(judge(prefix, to, &[far, near]), Way::Silent(Some(far.from)));
        assert_eq!(judge(prefix, to, &[]), Way::Silent(None));
    }
}
