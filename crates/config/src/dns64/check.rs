//! What has to go together in `[dns64]`.

use std::net::{IpAddr, SocketAddr};

use fordway_dns64::Reverse;
use fordway_resolver::{Protocol, Server};
use fordway_xlat::addr::Pool6;
use hickory_proto::rr::Name;
use ipnet::{IpNet, Ipv4Net};
use toml::Spanned;

use super::Dns64;
use crate::diagnostic::Sink;
use crate::findings::{duplicates, no_effect, twice, well_known_prefix};
use crate::keys::{Places, Read};
use crate::value::name_text;

/// Checks the section. `prefixes`: those of the translators; `unread`: they may have others that could not be read.
pub(crate) fn dns64(draft: &Read<Dns64>, prefixes: &[Pool6], unread: bool, sink: &mut Sink) {
    let Read { value: dns64, at, complete } = draft;
    let listen = at.each("listen", &dns64.listen);
    duplicates("listen", &listen, sink);
    covered(&listen, sink);
    encrypted(draft, &listen, sink);
    let upstream = at.each("upstream", &dns64.upstream);
    duplicates("upstream", &upstream, sink);
    loops(&listen, &upstream, sink);
    let allow = at.each("allow", dns64.allow.as_deref().unwrap_or_default());
    duplicates("allow", &allow, sink);
    open_resolver(&allow, sink);
    synthesis(draft, prefixes, unread, sink);
    forwards(draft, &listen, sink);
    policies(draft, sink);
    if !complete {
        return;
    }
    let shows_certificate = |upstream: &Server| {
        matches!(upstream.protocol, Protocol::Tls { .. } | Protocol::Https { .. })
    };
    let of_domains = dns64.forwards.iter().flat_map(|forward| &forward.upstream);
    let any_shows = dns64.upstream.iter().chain(of_domains).any(shows_certificate);
    if let Some(span) = at.key("ca").filter(|_| !any_shows) {
        let message = "`ca` has no effect: no upstream server is asked over TLS or HTTPS";
        no_effect(span, message, sink);
    }
    if let Some(span) = at.key("trust_anchor").filter(|_| !dns64.validate) {
        let message = "`trust_anchor` has no effect: nothing is validated";
        sink.warn(span, message, "write validate = true, or leave it out");
    }
    if let Some(span) = at.key("reverse_domain").filter(|_| dns64.reverse == Reverse::Cname) {
        let message = "`reverse_domain` has no effect: reverse = \"cname\" makes no names";
        sink.warn(span, message, "write reverse = \"local\", or leave it out");
    }
    if let Some(span) = at.key("deadline").filter(|_| dns64.deadline < dns64.timeout) {
        let timeout = humantime::format_duration(dns64.timeout);
        let message =
            format!("`deadline` is shorter than `timeout`, the time of one try: {timeout}");
        sink.error(span, message, "write a longer one, best of several tries");
    }
    if let Some(span) = at.key("cookie_secret").filter(|_| !dns64.cookies) {
        no_effect(span, "`cookie_secret` has no effect without `cookies`", sink);
    }
    let unused = ["rebind_private", "rebind_exempt"].into_iter().filter_map(|key| at.key(key));
    for span in unused.filter(|_| !dns64.rebind_protection) {
        no_effect(span, "this has no effect without `rebind_protection`", sink);
    }
    if let Some(span) = at.key("stale_after").filter(|_| dns64.serve_stale.is_none()) {
        no_effect(span, "`stale_after` has no effect without `serve_stale`", sink);
    }
    if let Some(span) = at.key("burst").filter(|_| dns64.rate.is_none()) {
        no_effect(span, "`burst` has no effect without a rate", sink);
    }
}

/// An address and all addresses with one port can't be listened on at once.
pub(crate) fn covered(listen: &[Spanned<SocketAddr>], sink: &mut Sink) {
    for all in listen.iter().filter(|it| it.get_ref().ip().is_unspecified()) {
        let by = |it: &&Spanned<SocketAddr>| {
            let (all, it) = (all.get_ref(), it.get_ref());
            !it.ip().is_unspecified() && it.port() == all.port() && it.is_ipv6() == all.is_ipv6()
        };
        for one in listen.iter().filter(by) {
            let message = format!("`listen`: {} is one of {}", one.get_ref(), all.get_ref());
            sink.error(one.span(), message, "leave one out").beside(all.span(), "all addresses");
        }
    }
}

/// A server that asks itself never gets an answer.
fn loops(listen: &[Spanned<SocketAddr>], upstream: &[Spanned<Server>], sink: &mut Sink) {
    for upstream in upstream {
        let asked = upstream.get_ref().address;
        let takes = |it: &&Spanned<SocketAddr>| {
            let listen = it.get_ref();
            let everywhere = listen.ip().is_unspecified() && listen.is_ipv6() == asked.is_ipv6();
            let here = listen.ip() == asked.ip() || everywhere && asked.ip().is_loopback();
            here && listen.port() == asked.port()
        };
        if let Some(listen) = listen.iter().find(takes) {
            let message = format!("`upstream`: {asked} is this server itself");
            sink.error(
                upstream.span(),
                message,
                "write a server that knows the DNS, such as the provider's",
            )
            .beside(listen.span(), "it listens here");
        }
    }
}

/// An open resolver is used for attacks on others (RFC 5358).
fn open_resolver(allow: &[Spanned<IpNet>], sink: &mut Sink) {
    for net in allow.iter().filter(|net| net.get_ref().prefix_len() == 0) {
        let message =
            format!("`allow`: {} is everybody: an open resolver (RFC 5358)", net.get_ref());
        sink.warn(net.span(), message, "write the networks of the clients, or \"local\"");
    }
}

/// The prefixes of synthesised addresses.
fn synthesis(draft: &Read<Dns64>, prefixes: &[Pool6], unread: bool, sink: &mut Sink) {
    for Synthesis { pool6, ranges } in written(draft) {
        duplicates("pool6", &pool6, sink);
        duplicate_ranges(&ranges, sink);
        well_known_prefix(&pool6, sink);
    }
    // One that can't be read is written: its own mistake is told, and is all that is wrong.
    let written = !draft.complete || draft.at.has("pool6") || unread;
    if !written && prefixes.is_empty() {
        let message =
            "[dns64] has no `pool6`, and no translator here has a prefix to make addresses of";
        let help = "write the prefix of the network's NAT64: pool6 = [\"64:ff9b::/96\"]";
        sink.error(draft.at.span.clone(), message, help);
    }
    for (key, pool6) in written_prefixes(draft) {
        if !prefixes.is_empty() && !prefixes.contains(pool6.get_ref()) {
            let message = format!("`{key}`: no translator here has the prefix {}", pool6.get_ref());
            let help = "right where another host translates it; where pool6 is left out, it follows \
                        the translators";
            sink.warn(pool6.span(), message, help);
        }
    }
}

/// The prefixes of the section, or of a policy.
struct Synthesis {
    pool6: Vec<Spanned<Pool6>>,
    ranges: Vec<Spanned<(Ipv4Net, Pool6)>>,
}

/// Those that stand in the section, and in each policy.
fn written(draft: &Read<Dns64>) -> Vec<Synthesis> {
    let Read { value: dns64, at, .. } = draft;
    let of = |at: &Places, pool6: Option<&[Pool6]>, ranges: &[_]| Synthesis {
        pool6: at.each("pool6", pool6.unwrap_or_default()),
        ranges: at.each("ranges", ranges),
    };
    let mut all = vec![of(at, dns64.pool6.as_deref(), &dns64.ranges)];
    let policies = dns64.policies.iter().zip(at.tables("policy"));
    all.extend(policies.map(|(policy, at)| {
        of(at, policy.pool6.as_deref(), policy.ranges.as_deref().unwrap_or_default())
    }));
    all
}

/// All prefixes that stand in the section, with their keys.
pub(crate) fn written_prefixes(draft: &Read<Dns64>) -> Vec<(&'static str, Spanned<Pool6>)> {
    let each = written(draft).into_iter().flat_map(|Synthesis { pool6, ranges }| {
        let of_range =
            |range: Spanned<(_, Pool6)>| ("ranges", Spanned::new(range.span(), range.get_ref().1));
        let pool6 = pool6.into_iter().map(|pool6| ("pool6", pool6));
        pool6.chain(ranges.into_iter().map(of_range))
    });
    each.collect()
}

fn duplicate_ranges(ranges: &[Spanned<(Ipv4Net, Pool6)>], sink: &mut Sink) {
    for (first, second) in twice(ranges, |range| range) {
        let (v4, pool6) = second.get_ref();
        let message = format!("`ranges`: {v4} has {pool6} already");
        sink.error(second.span(), message, "leave one out").beside(first.span(), "here");
    }
}

/// DNS over TLS and over HTTPS.
fn encrypted(draft: &Read<Dns64>, listen: &[Spanned<SocketAddr>], sink: &mut Sink) {
    let Read { value: dns64, at, complete } = draft;
    let mut taken = listen.to_vec();
    for (key, addresses) in
        [("listen_tls", &dns64.listen_tls), ("listen_https", &dns64.listen_https)]
    {
        for address in at.each(key, addresses) {
            if let Some(other) =
                taken.iter().find(|it| same_place(*it.get_ref(), *address.get_ref()))
            {
                let message = format!("`{key}`: {} is taken", address.get_ref());
                sink.error(address.span(), message, "write another port")
                    .beside(other.span(), "by this");
            }
            taken.push(address);
        }
    }
    let (certificate, key) = (at.key("certificate"), at.key("key"));
    let speaks = ["listen_tls", "listen_https"].into_iter().find_map(|key| at.key(key));
    match (certificate, key) {
        (Some(one), None) | (None, Some(one)) if *complete => {
            let message = "a certificate needs its key, and a key its certificate";
            sink.error(one, message, "write `certificate` and `key`");
        }
        (None, None) if *complete && dns64.listen_tls.len() + dns64.listen_https.len() > 0 => {
            let message = "clients that speak TLS need a certificate";
            let help =
                "write certificate = \"/etc/fordway/dns.pem\" and key = \"/etc/fordway/dns.key\"";
            sink.error(speaks.unwrap_or(at.span.clone()), message, help);
        }
        (Some(one), Some(_)) if speaks.is_none() => {
            let message = "`certificate` has no effect: no client is served over TLS";
            sink.warn(one, message, "write listen_tls or listen_https, or leave it out");
        }
        _ => {}
    }
}

/// Names with servers of their own.
fn forwards(draft: &Read<Dns64>, listen: &[Spanned<SocketAddr>], sink: &mut Sink) {
    let Read { value: dns64, at, .. } = draft;
    let forwards = || dns64.forwards.iter().zip(at.tables("forward"));
    let domains: Vec<Spanned<Name>> =
        forwards().flat_map(|(forward, at)| at.each("domain", &forward.domains)).collect();
    for (first, second) in twice(&domains, |domain| domain) {
        let name = name_text(second.get_ref());
        let message = format!("`domain`: {name} has servers of its own already");
        sink.error(second.span(), message, "leave one out").beside(first.span(), "here");
    }
    for (forward, at) in forwards() {
        let upstream = at.each("upstream", &forward.upstream);
        duplicates("upstream", &upstream, sink);
        loops(listen, &upstream, sink);
        if let Some(span) =
            at.key("rebind_protection").filter(|_| draft.complete && !dns64.rebind_protection)
        {
            no_effect(span, "`rebind_protection` has no effect: that of [dns64] is off", sink);
        }
        if let Some(span) = at.key("validate").filter(|_| draft.complete && !dns64.validate) {
            no_effect(span, "`validate` has no effect: [dns64] validates nothing", sink);
        }
    }
}

fn policies(draft: &Read<Dns64>, sink: &mut Sink) {
    let Read { value: dns64, at, .. } = draft;
    let policies = || dns64.policies.iter().zip(at.tables("policy"));
    let clients: Vec<Spanned<IpNet>> =
        policies().flat_map(|(policy, at)| at.each("client", &policy.clients)).collect();
    for (first, second) in twice(&clients, |client| client) {
        let message = format!("`client`: {} has a policy already", second.get_ref());
        sink.error(second.span(), message, "leave one out").beside(first.span(), "here");
    }
    for (policy, at) in policies() {
        let of_synthesis = ["pool6", "ranges", "exclude", "exclude_a", "exempt"];
        let mut given =
            of_synthesis.into_iter().filter_map(|key| Some((key, at.key(key)?))).peekable();
        if policy.enable && given.peek().is_none() && !policy.clients.is_empty() {
            let message = "this policy says nothing that [dns64] does not say";
            let help = "write enable = false, or pool6, ranges, exclude, exclude_a or exempt";
            sink.warn(at.span.clone(), message, help);
        }
        for (key, span) in given.filter(|_| !policy.enable) {
            let message =
                format!("`{key}` has no effect: nothing is synthesised for these clients");
            no_effect(span, message, sink);
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
