//! Who the other side is: certificates of the cluster's authority.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fordway_certificates::provider;
use fordway_cluster::Member;
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{ChannelError, ChannelSettings};

/// Files, from which each connection is configured anew: certificates are replaced while gateways run.
pub(super) struct Tls {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    /// All gateways' names; `None`: its own.
    names: Vec<(ServerName<'static>, Option<Member>)>,
}

/// What the files hold.
struct Loaded {
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn bad(path: &Path, why: impl Display) -> ChannelError {
    ChannelError::File(path.to_owned(), why.to_string())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ChannelError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let all: Vec<_> = read.map_err(|error| bad(path, error))?;
    if all.is_empty() { Err(bad(path, "no certificate in it")) } else { Ok(all) }
}

/// A DNS name of a gateway.
pub(super) fn name(text: &str) -> Result<ServerName<'static>, ChannelError> {
    let name = ServerName::try_from(text.to_owned());
    let dns = name.ok().filter(|name| matches!(name, ServerName::DnsName(_)));
    dns.ok_or_else(|| ChannelError::Name(text.into()))
}

impl Tls {
    pub(super) fn new(settings: &ChannelSettings) -> Result<Self, ChannelError> {
        let ChannelSettings { ca, certificate, key, peers, .. } = settings.clone();
        let peers = peers.iter().map(|peer| Ok((name(&peer.name)?, Some(peer.member))));
        let mut names = peers.collect::<Result<Vec<_>, ChannelError>>()?;
        names.push((name(&settings.name)?, None));
        let tls = Self { ca, certificate, key, names };
        // What is wrong at the start is told at the start.
        tls.connector().and(tls.acceptor())?;
        Ok(tls)
    }

    fn load(&self) -> Result<Loaded, ChannelError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate).map_err(|error| bad(&self.ca, error))?;
        }
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| bad(&self.key, error))?;
        Ok(Loaded { roots: roots.into(), chain, key })
    }

    /// For a connection to a gateway.
    pub(super) fn connector(&self) -> Result<TlsConnector, ChannelError> {
        let Loaded { roots, chain, key } = self.load()?;
        let config = ClientConfig::builder_with_provider(provider().into())
            .with_protocol_versions(&[&TLS13])
            .map(|it| it.with_root_certificates(roots))
            .and_then(|it| it.with_client_auth_cert(chain, key));
        Ok(Arc::new(config.map_err(|error| bad(&self.certificate, error))?).into())
    }

    /// For a connection of a gateway.
    pub(super) fn acceptor(&self) -> Result<TlsAcceptor, ChannelError> {
        let Loaded { roots, chain, key } = self.load()?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider().into());
        let verifier = verifier.build().map_err(|error| bad(&self.ca, error))?;
        let config = ServerConfig::builder_with_provider(provider().into())
            .with_protocol_versions(&[&TLS13])
            .map(|it| it.with_client_cert_verifier(verifier))
            .and_then(|it| it.with_single_cert(chain, key));
        Ok(Arc::new(config.map_err(|error| bad(&self.certificate, error))?).into())
    }

    /// Whose verified certificate this is: that of the one gateway whose name it has. One for several would let each speak for the
    /// others.
    pub(super) fn whose(&self, certificates: Option<&[CertificateDer<'_>]>) -> Option<Member> {
        let parsed = webpki::EndEntityCert::try_from(certificates?.first()?).ok()?;
        let is = |name: &ServerName<'_>| parsed.verify_is_valid_for_subject_name(name).is_ok();
        let mut known = self.names.iter().filter(|(name, _)| is(name)).map(|(_, member)| *member);
        let first = known.next()?;
        first.filter(|_| known.next().is_none())
    }
}
