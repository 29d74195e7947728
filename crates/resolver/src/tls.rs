//! TLS towards upstream servers (RFC 8310: the server must authenticate itself).

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, ServerName};

use super::error::Error;
use super::settings::{Protocol, Server};

/// What is needed to make a TLS connection to one server.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

/// The TLS of a server, if it is asked by TLS. Authorities are read once, into `roots`.
pub(super) fn of_server(
    server: &Server,
    ca: Option<&Path>,
    roots: &mut Option<Arc<RootCertStore>>,
) -> Result<Option<Tls>, Error> {
    let (name, alpn) = match &server.protocol {
        Protocol::Udp | Protocol::Tcp => return Ok(None),
        Protocol::Tls { name } => (name, None),
        Protocol::Https { name, .. } => (name, Some(b"h2".to_vec())),
    };
    if alpn.is_some() && name.is_none() && server.address.is_ipv6() {
        return Err(Error::NameNeeded(server.to_string()));
    }
    let name = match name {
        None => ServerName::IpAddress(server.address.ip().into()),
        Some(name) => {
            ServerName::try_from(name.clone()).map_err(|_| Error::ServerName(name.clone()))?
        }
    };
    let roots = match roots {
        Some(roots) => Arc::clone(roots),
        None => Arc::clone(roots.insert(Arc::new(authorities(ca)?))),
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols.extend(alpn);
    Ok(Some(Tls { config: Arc::new(config), name }))
}

/// The certificates of authorities: those of a file in PEM, else the system's.
///
/// # Errors
/// The file can't be read or has none, or the system has none.
pub fn authorities(ca: Option<&Path>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        let found = rustls_native_certs::load_native_certs();
        // Some of the system's certificates are of obsolete kinds.
        let (usable, _) = roots.add_parsable_certificates(found.certs);
        if usable == 0 {
            let reason = found.errors.first().map_or("there are none".into(), ToString::to_string);
            return Err(Error::SystemCertificates(reason));
        }
        return Ok(roots);
    };
    let wrong = |reason: String| Error::Certificates { path: path.to_owned(), reason };
    let file = File::open(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    for certificate in CertificateDer::pem_reader_iter(io::BufReader::new(file)) {
        let certificate = certificate.map_err(|error| match error {
            pem::Error::Io(source) => Error::File { path: path.to_owned(), source },
            other => wrong(other.to_string()),
        })?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("it has no section CERTIFICATE".to_owned()));
    }
    Ok(roots)
}
