//! What has to go together in `[[proxy]]`.

use std::net::SocketAddr;

use fordway_proxy::{Authority, Host};
use toml::Spanned;

use super::{Proxy, ProxyCheck, ProxyCheckKind, ProxyMode, ProxyPassthrough};
use crate::diagnostic::Sink;
use crate::dns64::check::same_place;
use crate::findings::{duplicates, no_effect};
use crate::keys::{Places, Read};

/// Checks all entries; `taken`: where others listen by TCP, with who they are.
pub(crate) fn proxies(
    drafts: &[Read<Proxy>],
    taken: &[(SocketAddr, &'static str)],
    sink: &mut Sink,
) {
    for (at, draft) in drafts.iter().enumerate() {
        let Read { value: proxy, at: places, complete } = draft;
        let all = places.each("listen", &proxy.listen);
        duplicates("listen", &all, sink);
        let allow = places.each("allow", proxy.allow().map_or(&[], |allow| allow));
        duplicates("allow", &allow, sink);
        let earlier = &drafts[..at];
        if let Some(name) = places.of("name", &proxy.name) {
            let same =
                |it: &Read<Proxy>| it.at.key("name").is_some() && it.value.name == proxy.name;
            if earlier.iter().any(same) {
                let message = format!("two proxies have the name \"{}\"", proxy.name);
                sink.error(name.span(), message, "write another name");
            }
        }
        for listen in &all {
            let own = *listen.get_ref();
            let other = taken.iter().find(|(address, _)| same_place(own, *address)).map(|it| it.1);
            let mut before = earlier.iter().flat_map(|it| &it.value.listen);
            let another = before.any(|it| same_place(own, *it));
            if let Some(who) = other.or(another.then_some("another [[proxy]]")) {
                let message = format!("`listen`: {own} is taken by {who}");
                sink.error(listen.span(), message, "write another port");
            }
        }
        if let (Some(one), None) | (None, Some(one)) =
            (places.key("certificate"), places.key("key"))
        {
            let message = "a certificate needs its key, and a key its certificate";
            sink.error(one, message, "write `certificate` and `key`");
        }
        if !complete {
            continue;
        }
        if let ProxyMode::Forward(_) = proxy.mode
            && let Some(open) = allow.iter().find(|it| it.get_ref().prefix_len() == 0)
        {
            let message =
                format!("`allow`: {} is everybody: this is an open proxy", open.get_ref());
            sink.warn(open.span(), message, "write the networks of those whom it is for");
        }
        let fronts = places.each("accept_proxy", &proxy.accept_proxy);
        duplicates("accept_proxy", &fronts, sink);
        if let Some(open) = fronts.iter().find(|it| it.get_ref().prefix_len() == 0) {
            let message = format!(
                "`accept_proxy`: {} is everybody: each may say to be another",
                open.get_ref()
            );
            sink.error(open.span(), message, "write the networks of the proxies in front");
        }
        match &proxy.mode {
            ProxyMode::Forward(_) => {}
            ProxyMode::Reverse(reverse) => {
                is_no_loop(proxy, &places.each("upstream", &reverse.upstream), sink);
                check(&reverse.backend.check, places, sink);
            }
            ProxyMode::Passthrough(it) => passthrough(proxy, it, places, sink),
        }
        if proxy.limits.connections_per_client > proxy.limits.connections {
            let message = "`connections_per_client` is more than `connections`";
            sink.warn(places.span.clone(), message, "write less");
        }
    }
}

fn is_no_loop(proxy: &Proxy, upstream: &[Spanned<Authority>], sink: &mut Sink) {
    let loops = |server: &Authority| match server.host {
        Host::Address(ip) => proxy.listen.contains(&SocketAddr::new(ip, server.port)),
        Host::Name(_) => false,
    };
    if let Some(server) = upstream.iter().find(|it| loops(it.get_ref())) {
        let message = format!("`upstream`: {} is this proxy itself", server.get_ref());
        sink.error(server.span(), message, "write the server's address");
    }
}

/// Keys of one kind of check that another kind does not read.
fn check(check: &ProxyCheck, places: &Places, sink: &mut Sink) {
    let Some(at) = places.tables("check").first() else { return };
    let idle: &[&str] = match check.kind {
        ProxyCheckKind::Off => &["path", "host", "status", "interval", "timeout", "rise", "fall"],
        ProxyCheckKind::Tcp => &["path", "host", "status"],
        ProxyCheckKind::Tls => &["path", "status"],
        ProxyCheckKind::Http => &[],
    };
    for key in idle {
        if let Some(span) = at.key(key) {
            no_effect(span, format!("`{key}` has no effect with this kind of check"), sink);
        }
    }
    if check.kind != ProxyCheckKind::Off && check.timeout > check.interval {
        let message = "`timeout` is longer than `interval`: checks of a slow server come later";
        sink.warn(at.span.clone(), message, "write a shorter timeout, or a longer interval");
    }
}

fn passthrough(proxy: &Proxy, it: &ProxyPassthrough, places: &Places, sink: &mut Sink) {
    let mut names = Vec::new();
    for (route, at) in it.routes.iter().zip(places.tables("route")) {
        names.extend(at.each("name", &route.names));
        is_no_loop(proxy, &at.each("upstream", &route.upstream), sink);
    }
    duplicates("name", &names, sink);
    if it.routes.is_empty() {
        let message = "without a [[proxy.route]] every client is refused";
        sink.error(places.span.clone(), message, "write the names of the sites and their servers");
    }
    if let Some(span) = places.key("certificate").or_else(|| places.key("tls")) {
        let message = "with mode = \"passthrough\" the servers have the certificates";
        sink.error(span, message, "leave it out, or write mode = \"reverse\"");
    }
    for key in ["http2", "via", "forwarded", "upgrade"] {
        if let Some(span) = places.key(key) {
            no_effect(
                span,
                format!("`{key}` has no effect: what clients send passes unread"),
                sink,
            );
        }
    }
    check(&it.backend.check, places, sink);
}
