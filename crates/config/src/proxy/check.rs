//! What has to go together in `[[proxy]]`.

use std::net::SocketAddr;

use super::ProxyMode;
use super::read::Draft;
use crate::check::duplicates;
use crate::diagnostic::{Diagnostic, Sink};
use crate::dns64::check::same_place;

/// Checks all entries; `taken`: where others listen by TCP, with who they are.
pub(crate) fn proxies(drafts: &[Draft], taken: &[(SocketAddr, &'static str)], sink: &mut Sink) {
    for (at, draft) in drafts.iter().enumerate() {
        duplicates("listen", &draft.listen, sink);
        duplicates("allow", &draft.allow, sink);
        let earlier = &drafts[..at];
        if let Some(name) = &draft.name {
            let same =
                |it: &&Draft| it.name.as_ref().is_some_and(|it| it.get_ref() == name.get_ref());
            if earlier.iter().any(|it| same(&it)) {
                let message = format!("two proxies have the name \"{}\"", name.get_ref());
                sink.push(Diagnostic::error(name.span(), message).help("write another name"));
            }
        }
        for listen in &draft.listen {
            let own = *listen.get_ref();
            let other = taken.iter().find(|(address, _)| same_place(own, *address)).map(|it| it.1);
            let before = earlier.iter().flat_map(|it| &it.listen);
            let another = before.map(|it| *it.get_ref()).any(|it| same_place(own, it));
            if let Some(who) = other.or(another.then_some("another [[proxy]]")) {
                let message = format!("`listen`: {own} is taken by {who}");
                sink.push(Diagnostic::error(listen.span(), message).help("write another port"));
            }
        }
        if let Some(span) = &draft.half_tls {
            let message = "a certificate needs its key, and a key its certificate";
            sink.push(
                Diagnostic::error(span.clone(), message).help("write `certificate` and `key`"),
            );
        }
        let Some(proxy) = draft.proxy() else { continue };
        if let ProxyMode::Forward { .. } = proxy.mode
            && let Some(open) = draft.allow.iter().find(|it| it.get_ref().prefix_len() == 0)
        {
            let message =
                format!("`allow`: {} is everybody: this is an open proxy", open.get_ref());
            let help = "write the networks of those whom it is for";
            sink.push(Diagnostic::warning(open.span(), message).help(help));
        }
        let loops = |server: &&toml::Spanned<super::ProxyServer>| match server.get_ref() {
            super::ProxyServer::Address(address) => proxy.listen.contains(address),
            super::ProxyServer::Name(..) => false,
        };
        if let Some(server) = draft.upstream.iter().find(loops) {
            let message = format!("`upstream`: {} is this proxy itself", server.get_ref());
            sink.push(Diagnostic::error(server.span(), message).help("write the server's address"));
        }
        if proxy.limits.connections_per_client > proxy.limits.connections {
            let message = "`connections_per_client` is more than `connections`";
            sink.push(Diagnostic::warning(draft.span.clone(), message).help("write less"));
        }
    }
}
