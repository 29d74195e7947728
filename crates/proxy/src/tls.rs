//! TLS towards clients, and towards servers that are checked.

use std::fmt;
use std::sync::{Arc, LazyLock};

use fordway_certificates::{Certificates, Error, Files, provider};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::TlsAcceptor;

/// TLS towards clients.
pub(super) struct Tls {
    pub(super) certificates: Arc<Certificates>,
    pub(super) acceptor: TlsAcceptor,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.certificates.fmt(f)
    }
}

impl Tls {
    /// For clients that speak HTTP/1.1, and HTTP/2 if `http2`. `None`: there are no certificates. Follows on `before`.
    pub(super) fn new(
        files: &[Files],
        http2: bool,
        before: Option<&Tls>,
    ) -> Result<Option<Tls>, Error> {
        let before = before.map(|it| &*it.certificates);
        let Some(certificates) = Certificates::new(files, before)? else { return Ok(None) };
        let protocols: &[&str] = if http2 { &["h2", "http/1.1"] } else { &["http/1.1"] };
        let acceptor = certificates.acceptor(protocols)?;
        Ok(Some(Tls { certificates: Arc::new(certificates), acceptor }))
    }
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
