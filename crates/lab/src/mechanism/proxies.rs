//! Other people's HTTP proxies in the box in the middle: nginx, Apache and Squid, each in a configuration that
//! does what the gateway's own does there, without caches and access logs.

use std::path::{Path, PathBuf};

use fordway_data::addresses::{HOST_V6, PROXY_PORT, SERVER_V4, SITE_PORT};
use fordway_data::files::write_file;
use fordway_data::spec::Kind;

use super::{Availability, Context, Deployed, Mechanism};
use crate::error::{LabError, Result};
use crate::host::cpu::processors;
use crate::process::Output;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proxy {
    Nginx,
    Apache,
    Squid,
}

/// Modules of Apache that a proxy needs, in the order in which they load.
const APACHE_MODULES: [&str; 5] =
    ["mpm_event", "authz_core", "proxy", "proxy_http", "proxy_connect"];

impl Proxy {
    /// The whole configuration; what it writes goes into the folder.
    fn config(self, kind: Kind, folder: &Path) -> String {
        let at = folder.display();
        match self {
            Self::Nginx => format!(
                "daemon off;\nuser root;\nworker_processes {threads};\npid {at}/pid;\n\
                 error_log stderr warn;\nevents {{ worker_connections 8192; }}\n\
                 http {{\n access_log off;\n client_max_body_size 64m;\n\
                 \x20client_body_temp_path {at}/body;\n proxy_temp_path {at}/proxy;\n\
                 \x20fastcgi_temp_path {at}/fastcgi;\n uwsgi_temp_path {at}/uwsgi;\n\
                 \x20scgi_temp_path {at}/scgi;\n keepalive_requests 1000000;\n\
                 \x20upstream site {{ server {SERVER_V4}:{SITE_PORT}; keepalive 256; keepalive_requests 1000000; }}\n\
                 \x20server {{\n  listen [{HOST_V6}]:{SITE_PORT};\n  location / {{\n\
                 \x20  proxy_pass http://site;\n   proxy_http_version 1.1;\n\
                 \x20  proxy_set_header Connection \"\";\n   proxy_set_header Host $host;\n\
                 \x20  proxy_request_buffering off;\n  }}\n }}\n}}\n",
                threads = processors()
            ),
            Self::Apache => {
                let load = |name: &str| {
                    format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")
                };
                let mut text: String = APACHE_MODULES.map(load).concat();
                let port = if kind == Kind::Proxy { PROXY_PORT } else { SITE_PORT };
                text.push_str(&format!(
                    "ServerRoot {at}\nServerName proxy.lab.example\nDefaultRuntimeDir {at}\n\
                     PidFile {at}/pid\nErrorLog /dev/stderr\nLogLevel warn\nUser www-data\n\
                     Group www-data\nListen [{HOST_V6}]:{port}\nKeepAlive On\n\
                     MaxKeepAliveRequests 0\nTimeout 10\n"
                ));
                text.push_str(&match kind {
                    Kind::Proxy => "ProxyRequests On\nAllowCONNECT 1-65535\nProxyVia On\n\
                                    <Proxy \"*\">\n Require all granted\n</Proxy>\n"
                        .to_owned(),
                    _ => format!(
                        "ProxyPreserveHost On\n\
                         ProxyPass / http://{SERVER_V4}:{SITE_PORT}/\n\
                         <Location />\n Require all granted\n</Location>\n"
                    ),
                });
                text
            }
            Self::Squid => format!(
                "http_port [{HOST_V6}]:{PROXY_PORT}\nhttp_access allow all\ncache deny all\n\
                 cache_mem 8 MB\naccess_log none\ncache_store_log none\ncache_log {at}/log\n\
                 pid_filename {at}/pid\ncoredump_dir {at}\ncache_effective_user proxy\n\
                 dns_nameservers {SERVER_V4}\nshutdown_lifetime 0 seconds\n\
                 forwarded_for delete\n"
            ),
        }
    }

    /// The command line, with the configuration in `file`.
    fn argv(self, file: &str, resolver: &str) -> Vec<String> {
        let own: &[&str] = match self {
            Self::Nginx => &["nginx", "-c", file],
            Self::Apache => &["apache2", "-D", "FOREGROUND", "-f", file],
            Self::Squid => &["squid", "-N", "-f", file],
        };
        let own = own.iter().map(ToString::to_string);
        if self != Self::Apache {
            return own.collect();
        }
        // It asks whom the machine asks: it gets a file of its own.
        let script = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
        let own_mount =
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, resolver];
        own_mount.map(str::to_owned).into_iter().chain(own).collect()
    }

    /// The user that its workers run as.
    fn user(self) -> Option<&'static str> {
        match self {
            Self::Nginx => None,
            Self::Apache => Some("www-data"),
            Self::Squid => Some("proxy"),
        }
    }
}

impl Mechanism for Proxy {
    fn availability(&self, kind: Kind) -> Availability {
        match (self, kind) {
            (Self::Nginx, Kind::Proxy) | (Self::Squid, Kind::ReverseProxy) => {
                Availability::Missing { hint: format!("{self:?} is none of that kind") }
            }
            (Self::Nginx, _) => Availability::of_package("nginx", "nginx-light", &["nginx"]),
            (Self::Apache, _) => Availability::of_package("Apache", "apache2-bin", &["apache2"]),
            (Self::Squid, _) => Availability::of_package("Squid", "squid", &["squid"]),
        }
    }

    fn deploy(&self, context: Context<'_>) -> Result<Deployed> {
        let folder = super::run_dir(context);
        std::fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
        if let Some(user) = self.user() {
            let to = folder.display().to_string();
            crate::process::run_str(&["chown", user, &to])?.ok()?;
        }
        let config = self.config(context.spec.kind, &folder);
        let name = format!("{}-proxy.conf", context.name);
        let file = context.backend.deploy(&name, config.as_bytes())?.display().to_string();
        let resolver: PathBuf = folder.join("resolv.conf");
        write_file(&resolver, format!("nameserver {SERVER_V4}\n").as_bytes())?;
        let argv = self.argv(&file, &resolver.display().to_string());
        let log = context.logs.join(format!("{}-proxy.log", context.name));
        let place = context.network.host.as_ref().ok_or_else(|| super::no_middle(context.spec))?;
        let daemon = context.backend.run(Some(place), &argv, Output::Log(&log))?;
        Ok(Deployed {
            config,
            argv,
            daemon: Some(daemon),
            run_dir: Some(folder),
            ..Deployed::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listens_where_the_clients_ask() {
        let folder = Path::new("/run/x");
        for (proxy, kind, port) in [
            (Proxy::Nginx, Kind::ReverseProxy, 80),
            (Proxy::Apache, Kind::ReverseProxy, 80),
            (Proxy::Apache, Kind::Proxy, 3128),
            (Proxy::Squid, Kind::Proxy, 3128),
        ] {
            let text = proxy.config(kind, folder);
            assert!(text.contains(&format!("[2001:db8:f::1]:{port}")), "{text}");
            assert_eq!(text.contains("198.51.100.2:80"), kind == Kind::ReverseProxy, "{text}");
        }
    }

    #[test]
    fn what_a_program_cannot_be_is_told() {
        let of = |proxy: Proxy, kind| match proxy.availability(kind) {
            Availability::Missing { hint } => hint,
            Availability::Ready { .. } => String::new(),
        };
        assert_eq!(of(Proxy::Nginx, Kind::Proxy), "Nginx is none of that kind");
        assert_eq!(of(Proxy::Squid, Kind::ReverseProxy), "Squid is none of that kind");
    }

    #[test]
    fn apache_asks_the_labs_name_server() {
        let argv = Proxy::Apache.argv("/c", "/r").join(" ");
        assert!(argv.starts_with("unshare --mount") && argv.contains(" /r apache2 "), "{argv}");
        assert_eq!(Proxy::Nginx.argv("/c", "/r"), ["nginx", "-c", "/c"]);
    }
}
