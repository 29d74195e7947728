//! Certificates for clients that speak TLS: chosen by the name that a client asks for, and read again when their files
//! change.

mod watch;

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

pub use watch::{Certificates, Counts};

/// A certificate with its key, in files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate, and those that lead to a known authority, in PEM.
    pub certificate: PathBuf,
    /// The key, in PEM.
    pub key: PathBuf,
}

/// A certificate or key is of no use.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// What certificates there are, by the names in them. It never changes; changed files replace it.
#[derive(Debug)]
struct Loaded {
    /// For clients that ask for no name, or for one that no certificate has.
    default: Arc<CertifiedKey>,
    /// Names in lower case; those of wildcards with `*` as their first label.
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl Loaded {
    /// The certificate for a name: its own before that of a wildcard (RFC 6125 section 6.4.3), else the first.
    fn choose(&self, name: Option<&str>) -> &Arc<CertifiedKey> {
        let name = name.map(str::to_ascii_lowercase);
        let of_wildcard = |name: &str| {
            let (_, rest) = name.split_once('.')?;
            self.by_name.get(&format!("*.{rest}"))
        };
        let found = name.and_then(|it| self.by_name.get(&it).or_else(|| of_wildcard(&it)));
        found.unwrap_or(&self.default)
    }
}

/// Chooses by the name that a client asks for, of what is loaded at this moment.
#[derive(Debug)]
struct ByName(Arc<ArcSwap<Loaded>>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.0.load().choose(hello.server_name())))
    }
}

/// A certificate with its key, and its names.
type Certificate = (Arc<CertifiedKey>, Vec<String>);

fn read(files: &Files) -> Result<Certificate, Error> {
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(&files.certificate)
            .and_then(Iterator::collect)
            .map_err(|error| bad(&files.certificate, error))?;
    let Some(first) = certificates.first() else {
        return Err(bad(&files.certificate, "no certificate in it"));
    };
    let parsed =
        webpki::EndEntityCert::try_from(first).map_err(|it| bad(&files.certificate, it))?;
    let names = parsed.valid_dns_names().map(str::to_ascii_lowercase).collect();
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| bad(&files.key, error))?;
    let certified = CertifiedKey::from_der(certificates, key, &provider())
        .map_err(|error| bad(&files.certificate, error))?;
    Ok((Arc::new(certified), names))
}

fn config(
    loaded: &Arc<ArcSwap<Loaded>>,
    protocols: &[&str],
) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(ByName(Arc::clone(loaded))));
    config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
    Ok(config)
}

fn bad(path: &Path, reason: impl Display) -> Error {
    Error { path: path.to_owned(), reason: reason.to_string() }
}

/// The ciphers of servers, and of clients that check them.
#[must_use]
pub fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}
