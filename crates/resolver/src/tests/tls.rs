//! Certificates for servers on loopback.

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::NamedTempFile;
use tokio_rustls::TlsAcceptor;

use super::super::{Error, Protocol};
use super::*;

/// An authority, its certificate in a file, and a server that it vouches for: `dns.example.net`, or 127.0.0.1.
pub(super) struct Authority {
    pub(super) file: NamedTempFile,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let own_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&own_key).unwrap();
        let issuer = Issuer::new(params, own_key);

        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["dns.example.net".to_owned()]).unwrap();
        let address = SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST));
        params.subject_alt_names.push(address);
        let certificate = params.signed_by(&key, &issuer).unwrap().der().clone();

        let mut file = NamedTempFile::new().unwrap();
        file.write_all(own.pem().as_bytes()).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        Self { file, certificate, key }
    }

    /// The server's side of TLS.
    pub(super) fn acceptor(&self, alpn: &[&[u8]]) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

fn made(protocol: Protocol, address: &str, ca: Option<PathBuf>) -> Result<Arc<Resolver>, Error> {
    let servers = vec![Server { address: address.parse().unwrap(), protocol }];
    Resolver::new(Settings { ca, ..Settings::new(servers) })
}

#[test]
fn what_can_not_work_is_told_beforehand() {
    let tls = |name: &str| Protocol::Tls { name: Some(name.to_owned()) };
    let authority = Authority::new();
    let ca = || Some(authority.file.path().to_owned());
    let address = "192.0.2.53:853";
    assert!(made(tls("dns.example.net"), address, ca()).is_ok());

    let error = made(tls("not a name"), address, ca()).unwrap_err();
    assert!(matches!(error, Error::ServerName(_)), "{error}");

    let https = |name| Protocol::Https { name, path: "/dns-query".to_owned() };
    let error = made(https(None), "[2001:db8::53]:443", ca()).unwrap_err();
    let text = "`https://[2001:db8::53]:443/dns-query` needs the name of its certificate: `#name`";
    assert_eq!(error.to_string(), text);
    assert!(made(https(None), "192.0.2.53:443", ca()).is_ok());

    let error = made(tls("dns.example.net"), address, Some("/nowhere".into())).unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");

    let empty = NamedTempFile::new().unwrap();
    let error = made(tls("dns.example.net"), address, Some(empty.path().to_owned())).unwrap_err();
    assert!(matches!(error, Error::Certificates { .. }), "{error}");

    let error = Resolver::new(Settings::new(Vec::new())).unwrap_err();
    assert!(matches!(error, Error::NoServers), "{error}");
}
