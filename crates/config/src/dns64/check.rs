//! What has to go together in `[dns64]`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use fordway_xlat::addr::Pool6;
use ipnet::{IpNet, Ipv4Net};
use toml::Spanned;

use super::read::{Draft, PolicyDraft, no_effect};
use super::{Reverse, Upstream, UpstreamProtocol};
use crate::check::{duplicates, well_known_prefix};
use crate::diagnostic::{Diagnostic, Sink};

/// Checks the section. `prefixes`: those of the translators; `unread`: they may have others that could not be read.
pub(crate) fn dns64(draft: &Draft, prefixes: &[Pool6], unread: bool, sink: &mut Sink) {
    duplicates("listen", &draft.listen, sink);
    covered(&draft.listen, sink);
    duplicate_upstream(&draft.upstream, sink);
    loops(draft, sink);
    duplicates("allow", &draft.allow, sink);
    open_resolver(&draft.allow, sink);
    synthesis(draft, prefixes, unread, sink);
    policies(&draft.policies, sink);
    let Some(dns64) = draft.dns64() else { return };
    let shows_certificate = |upstream: &Upstream| {
        matches!(upstream.protocol, UpstreamProtocol::Tls { .. } | UpstreamProtocol::Https { .. })
    };
    if let Some(span) = &draft.ca
        && !dns64.upstream.iter().any(shows_certificate)
    {
        let message = "`ca` has no effect: no upstream server is asked over TLS or HTTPS";
        no_effect(span.clone(), message, sink);
    }
    if let Some(span) = &draft.trust_anchor
        && !dns64.validate
    {
        let message = "`trust_anchor` has no effect: nothing is validated";
        let help = "write validate = true, or leave it out";
        sink.push(Diagnostic::warning(span.clone(), message).help(help));
    }
    if let Some(span) = &draft.reverse_domain
        && dns64.reverse == Reverse::Cname
    {
        let message = "`reverse_domain` has no effect: reverse = \"cname\" makes no names";
        let help = "write reverse = \"local\", or leave it out";
        sink.push(Diagnostic::warning(span.clone(), message).help(help));
    }
    if let Some(span) = &draft.deadline
        && dns64.deadline < dns64.timeout
    {
        let timeout = humantime::format_duration(dns64.timeout);
        let message =
            format!("`deadline` is shorter than `timeout`, the time of one try: {timeout}");
        let help = "write a longer one, best of several tries";
        sink.push(Diagnostic::error(span.clone(), message).help(help));
    }
    if let Some(span) = &draft.burst
        && dns64.rate.is_none()
    {
        no_effect(span.clone(), "`burst` has no effect without a rate", sink);
    }
}

/// An address and all addresses with one port can't be listened on at once.
fn covered(listen: &[Spanned<SocketAddr>], sink: &mut Sink) {
    for all in listen.iter().filter(|it| it.get_ref().ip().is_unspecified()) {
        let by = |it: &&Spanned<SocketAddr>| {
            let (all, it) = (all.get_ref(), it.get_ref());
            !it.ip().is_unspecified() && it.port() == all.port() && it.is_ipv6() == all.is_ipv6()
        };
        for one in listen.iter().filter(by) {
            let message = format!("`listen`: {} is one of {}", one.get_ref(), all.get_ref());
            sink.push(
                Diagnostic::error(one.span(), message)
                    .related(all.span(), "all addresses")
                    .help("leave one out"),
            );
        }
    }
}

fn duplicate_upstream(upstream: &[Spanned<Upstream>], sink: &mut Sink) {
    let mut first: HashMap<&Upstream, &Spanned<Upstream>> = HashMap::new();
    for one in upstream {
        if let Some(earlier) = first.get(one.get_ref()) {
            let message = format!("`upstream`: {} is listed twice", one.get_ref());
            sink.push(
                Diagnostic::error(one.span(), message)
                    .related(earlier.span(), "here first")
                    .help("leave one out"),
            );
        } else {
            first.insert(one.get_ref(), one);
        }
    }
}

/// A server that asks itself never gets an answer.
fn loops(draft: &Draft, sink: &mut Sink) {
    for upstream in &draft.upstream {
        let asked = upstream.get_ref().address;
        let takes = |it: &&Spanned<SocketAddr>| {
            let listen = it.get_ref();
            let everywhere = listen.ip().is_unspecified() && listen.is_ipv6() == asked.is_ipv6();
            let here = listen.ip() == asked.ip() || everywhere && asked.ip().is_loopback();
            here && listen.port() == asked.port()
        };
        if let Some(listen) = draft.listen.iter().find(takes) {
            let message = format!("`upstream`: {asked} is this server itself");
            sink.push(
                Diagnostic::error(upstream.span(), message)
                    .related(listen.span(), "it listens here")
                    .help("write a server that knows the DNS, such as the provider's"),
            );
        }
    }
}

/// Whoever can be asked by all the world is used against others (RFC 5358).
fn open_resolver(allow: &[Spanned<IpNet>], sink: &mut Sink) {
    for net in allow.iter().filter(|net| net.get_ref().prefix_len() == 0) {
        let message =
            format!("`allow`: {} is everybody: an open resolver (RFC 5358)", net.get_ref());
        let help = "write the networks of the clients, or \"local\"";
        sink.push(Diagnostic::warning(net.span(), message).help(help));
    }
}

/// The prefixes of synthesised addresses.
fn synthesis(draft: &Draft, prefixes: &[Pool6], unread: bool, sink: &mut Sink) {
    duplicates("pool6", &draft.pool6, sink);
    duplicate_ranges(&draft.ranges, sink);
    for policy in &draft.policies {
        duplicates("pool6", &policy.pool6, sink);
        duplicate_ranges(&policy.ranges, sink);
    }
    // One that can't be read is written: its own mistake is told, and is all that is wrong.
    let written = draft.dns64().is_none() || draft.pool6_written || unread;
    if !written && prefixes.is_empty() {
        let message =
            "[dns64] has no `pool6`, and no translator here has a prefix to make addresses of";
        let help = "write the prefix of the network's NAT64: pool6 = [\"64:ff9b::/96\"]";
        sink.push(Diagnostic::error(draft.span.clone(), message).help(help));
    }
    for policy in &draft.policies {
        well_known_prefix(&policy.pool6, sink);
    }
    well_known_prefix(&draft.pool6, sink);
    for (key, pool6) in written_prefixes(draft) {
        if !prefixes.is_empty() && !prefixes.contains(pool6.get_ref()) {
            let message = format!("`{key}`: no translator here has the prefix {}", pool6.get_ref());
            let help = "right where another host translates it; where pool6 is left out, it follows \
                        the translators";
            sink.push(Diagnostic::warning(pool6.span(), message).help(help));
        }
    }
}

/// All prefixes that stand in the section, with their keys.
pub(crate) fn written_prefixes(draft: &Draft) -> Vec<(&'static str, Spanned<Pool6>)> {
    let of_policies = draft.policies.iter().map(|policy| (&policy.pool6, &policy.ranges));
    let all = std::iter::once((&draft.pool6, &draft.ranges)).chain(of_policies);
    let each = all.flat_map(|(pool6, ranges)| {
        let of_range =
            |range: &Spanned<(_, Pool6)>| ("ranges", Spanned::new(range.span(), range.get_ref().1));
        let pool6 = pool6.iter().map(|pool6| ("pool6", pool6.clone()));
        pool6.chain(ranges.iter().map(of_range))
    });
    each.collect()
}

fn duplicate_ranges(ranges: &[Spanned<(Ipv4Net, Pool6)>], sink: &mut Sink) {
    for (index, range) in ranges.iter().enumerate() {
        let earlier = ranges[..index].iter().find(|it| it.get_ref() == range.get_ref());
        if let Some(earlier) = earlier {
            let (v4, pool6) = range.get_ref();
            let message = format!("`ranges`: {v4} has {pool6} already");
            sink.push(
                Diagnostic::error(range.span(), message)
                    .related(earlier.span(), "here")
                    .help("leave one out"),
            );
        }
    }
}

fn policies(policies: &[PolicyDraft], sink: &mut Sink) {
    let mut first: HashMap<IpNet, &Spanned<IpNet>> = HashMap::new();
    for client in policies.iter().flat_map(|policy| &policy.clients) {
        if let Some(earlier) = first.get(client.get_ref()) {
            let message = format!("`client`: {} has a policy already", client.get_ref());
            sink.push(
                Diagnostic::error(client.span(), message)
                    .related(earlier.span(), "here")
                    .help("leave one out"),
            );
        } else {
            first.insert(*client.get_ref(), client);
        }
    }
    for policy in policies {
        if !policy.enable() {
            for (key, span) in &policy.of_synthesis {
                let message =
                    format!("`{key}` has no effect: nothing is synthesised for these clients");
                no_effect(span.clone(), message, sink);
            }
        } else if policy.of_synthesis.is_empty() && !policy.clients.is_empty() {
            let message = "this policy says nothing that [dns64] does not say";
            let help = "write enable = false, or pool6, ranges, exclude, exclude_a or exempt";
            sink.push(Diagnostic::warning(policy.span.clone(), message).help(help));
        }
    }
}

/// Whether two sockets can't be bound at once: `other` is one of the same protocol.
pub(crate) fn same_place(one: SocketAddr, other: SocketAddr) -> bool {
    let all = |address: IpAddr| address.is_unspecified();
    one.port() == other.port()
        && one.is_ipv6() == other.is_ipv6()
        && (one.ip() == other.ip() || all(one.ip()) || all(other.ip()))
}
