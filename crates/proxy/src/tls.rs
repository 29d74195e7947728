//! Certificates for clients that speak TLS.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::error::Error;
use super::settings::Tls;

/// Reads a certificate and its key, for clients that speak HTTP/1.1, and HTTP/2 if `http2`.
///
/// # Errors
/// [`Error::Tls`] names the file and what is wrong with it.
pub fn acceptor(tls: &Tls, http2: bool) -> Result<TlsAcceptor, Error> {
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(&tls.certificate)
            .and_then(Iterator::collect)
            .map_err(|error| bad(&tls.certificate, error))?;
    if certificates.is_empty() {
        return Err(bad(&tls.certificate, "no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| bad(&tls.key, error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&tls.certificate, error))?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| bad(&tls.certificate, error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if http2 {
        config.alpn_protocols.insert(0, b"h2".to_vec());
    }
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn bad(path: &Path, reason: impl Display) -> Error {
    Error::Tls { path: path.to_owned(), reason: reason.to_string() }
}
