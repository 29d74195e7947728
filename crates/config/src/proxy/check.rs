//! What has to go together in `[[proxy]]`.

use std::net::SocketAddr;

use fordway_proxy::{Authority, Host};

use super::{Proxy, ProxyMode};
use crate::diagnostic::Sink;
use crate::dns64::check::same_place;
use crate::findings::duplicates;
use crate::keys::Read;

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
        if let ProxyMode::Reverse(reverse) = &proxy.mode {
            let loops = |server: &Authority| match server.host {
                Host::Address(ip) => proxy.listen.contains(&SocketAddr::new(ip, server.port)),
                Host::Name(_) => false,
            };
            let upstream = places.each("upstream", &reverse.upstream);
            if let Some(server) = upstream.iter().find(|it| loops(it.get_ref())) {
                let message = format!("`upstream`: {} is this proxy itself", server.get_ref());
                sink.error(server.span(), message, "write the server's address");
            }
        }
        if proxy.limits.connections_per_client > proxy.limits.connections {
            let message = "`connections_per_client` is more than `connections`";
            sink.warn(places.span.clone(), message, "write less");
        }
    }
}
