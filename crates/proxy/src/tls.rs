//! Certificates for clients that speak TLS: by name, and read again when their files change. TLS towards servers that
//! are checked.

mod files;

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::TlsAcceptor;

use super::error::Error;
use super::settings::Tls;
pub(super) use files::{Certificates, Counts};

/// What certificates there are, by the names in them. It never changes; changed files replace it.
#[derive(Debug)]
pub(super) struct Loaded {
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

fn read(tls: &Tls) -> Result<Certificate, Error> {
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(&tls.certificate)
            .and_then(Iterator::collect)
            .map_err(|error| bad(&tls.certificate, error))?;
    let Some(first) = certificates.first() else {
        return Err(bad(&tls.certificate, "no certificate in it"));
    };
    let parsed = webpki::EndEntityCert::try_from(first).map_err(|it| bad(&tls.certificate, it))?;
    let names = parsed.valid_dns_names().map(str::to_ascii_lowercase).collect();
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| bad(&tls.key, error))?;
    let certified = CertifiedKey::from_der(certificates, key, &provider())
        .map_err(|error| bad(&tls.certificate, error))?;
    Ok((Arc::new(certified), names))
}

/// For clients that speak HTTP/1.1, and HTTP/2 if `http2`, with one certificate and its key.
///
/// # Errors
/// [`Error::Tls`] names the file and what is wrong with it.
pub fn acceptor(tls: &Tls, http2: bool) -> Result<TlsAcceptor, Error> {
    let loaded = Loaded { default: read(tls)?.0, by_name: HashMap::new() };
    let loaded = Arc::new(ArcSwap::from_pointee(loaded));
    acceptor_of(&loaded, http2).map_err(|error| bad(&tls.certificate, error))
}

fn acceptor_of(loaded: &Arc<ArcSwap<Loaded>>, http2: bool) -> Result<TlsAcceptor, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(ByName(Arc::clone(loaded))));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if http2 {
        config.alpn_protocols.insert(0, b"h2".to_vec());
    }
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn bad(path: &Path, reason: impl Display) -> Error {
    Error::Tls { path: path.to_owned(), reason: reason.to_string() }
}

fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// TLS towards a server that is checked, which may have any certificate. Each check makes a whole handshake.
pub(super) fn checking() -> Result<Arc<ClientConfig>, rustls::Error> {
    static CONFIG: LazyLock<Result<Arc<ClientConfig>, rustls::Error>> = LazyLock::new(|| {
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Any(provider())))
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    });
    CONFIG.clone()
}

/// Accepts any certificate whose key the server has.
#[derive(Debug)]
struct Any(CryptoProvider);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
