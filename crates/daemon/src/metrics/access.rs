//! Who may read the metrics: TLS and a bearer token (RFC 6750), where the configuration asks for them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use fordway_certificates::{Certificates, Error, Files};
use fordway_config::{Metrics, MetricsToken};
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio_rustls::TlsAcceptor;

use crate::failure::Failure;

/// Characters that a token has at least.
const SHORTEST: usize = 16;

/// Certificate and token as they were read last. Clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Access(Arc<Mutex<Arc<Guards>>>);

impl Access {
    /// Those that clients have to do with from now on.
    pub(crate) fn set(&self, guards: Guards) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(guards);
    }

    pub(super) fn now(&self) -> Arc<Guards> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a client has to do with.
#[derive(Default)]
pub(crate) struct Guards {
    pub(super) tls: Option<Tls>,
    token: Option<Token>,
}

/// What accepts connections by TLS, with the certificate of this moment.
pub(super) struct Tls {
    pub(super) certificates: Arc<Certificates>,
    pub(super) acceptor: TlsAcceptor,
}

impl Tls {
    fn new(files: &Files) -> Result<Option<Tls>, Error> {
        let Some(certificates) = Certificates::new(std::slice::from_ref(files), None)? else {
            return Ok(None);
        };
        let acceptor = certificates.acceptor(&["http/1.1"])?;
        Ok(Some(Tls { certificates: Arc::new(certificates), acceptor }))
    }
}

impl Guards {
    /// Reads the files that the configuration names.
    pub(crate) fn read(config: &Metrics) -> Result<Guards, Failure> {
        let tls = config.tls().map(|(certificate, key)| {
            let files = Files { certificate: certificate.clone(), key: key.clone() };
            Tls::new(&files).map_err(|error| {
                Failure::failed(format!("[metrics]: {error}"))
                    .hint("name files in PEM that root may read, as certificate and key")
            })
        });
        let token = match &config.token_file {
            Some(MetricsToken::File(file)) => Some(Token::read(file)?),
            Some(MetricsToken::None) | None => None,
        };
        Ok(Guards { tls: tls.transpose()?.flatten(), token })
    }

    /// Whether a request shows what it has to.
    pub(super) fn allow(&self, headers: &HeaderMap) -> bool {
        self.token.as_ref().is_none_or(|token| {
            let shown = headers.get(AUTHORIZATION).map_or(&b""[..], |it| it.as_bytes());
            let (scheme, shown) = shown.split_at(shown.len().min(BEARER.len()));
            scheme.eq_ignore_ascii_case(BEARER) && token.is(shown.trim_ascii())
        })
    }
}

const BEARER: &[u8] = b"Bearer ";

/// The digest of a token: what is compared has one length, and the time tells nothing of the token.
struct Token([u8; 32]);

impl Token {
    fn read(file: &Path) -> Result<Token, Failure> {
        let failed = |what: &str| {
            Failure::failed(format!("[metrics] token_file {}: {what}", file.display()))
                .hint(format!("openssl rand -hex 32 > {}", file.display()))
        };
        let text = std::fs::read_to_string(file).map_err(|error| failed(&error.to_string()))?;
        let token = text.trim();
        if token.len() < SHORTEST || !token.bytes().all(|octet| octet.is_ascii_graphic()) {
            return Err(failed("a token is a line of 16 visible ASCII characters or more"));
        }
        Ok(Token::of(token.as_bytes()))
    }

    fn of(token: &[u8]) -> Token {
        Token(Sha256::digest(token).into())
    }

    fn is(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(&Token::of(shown).0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_opens_and_nothing_else_does() {
        let guards = Guards { tls: None, token: Some(Token::of(b"0123456789abcdef")) };
        let shows = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            guards.allow(&headers)
        };
        assert!(shows("Bearer 0123456789abcdef") && shows("bearer  0123456789abcdef "));
        for wrong in [
            "Bearer 0123456789abcdee",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer ",
            "Bearer",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
            "",
        ] {
            assert!(!shows(wrong), "{wrong:?}");
        }
        assert!(!guards.allow(&HeaderMap::new()));
        assert!(Guards::default().allow(&HeaderMap::new()));
    }

    #[test]
    fn a_token_has_a_length_and_a_file() {
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("token");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Token::read(&file).map(|token| token.is(b"0123456789abcdef"))
        };
        assert_eq!(read("0123456789abcdef\n").ok(), Some(true));
        for wrong in ["", "0123456789abcde\n", "0123456789 abcdef\n", "0123456789abcdef\nmore\n"] {
            let error = read(wrong).unwrap_err().line();
            assert!(error.contains("16 visible ASCII characters"), "{wrong:?}: {error}");
        }
        let missing = Token::read(&dir.path().join("none")).map(drop).unwrap_err().line();
        assert!(missing.contains("No such file"), "{missing}");
    }
}
