//! Certificates of their own authority.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Writes a certificate for names, and its key, as one would, whole in the place of those that were there: `file`.pem and
/// `file`.key.
#[allow(clippy::missing_panics_doc)]
pub fn write(folder: &Path, file: &str, names: &[&str]) -> [PathBuf; 2] {
    let key = KeyPair::generate().unwrap();
    let certificate = parameters(names).self_signed(&key).unwrap();
    put(folder, file, &certificate.pem(), &key)
}

/// An authority, which signs certificates of others.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub certificate: PathBuf,
}

impl Authority {
    /// A new one, whose certificate is in `file`.pem.
    #[allow(clippy::missing_panics_doc)]
    pub fn new(folder: &Path, file: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut own = parameters(&[]);
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let signed = own.self_signed(&key).unwrap();
        let [certificate, _] = put(folder, file, &signed.pem(), &key);
        Self { issuer: Issuer::new(own, key), certificate }
    }

    /// As [`write`], signed by it.
    #[allow(clippy::missing_panics_doc)]
    pub fn write(&self, folder: &Path, file: &str, names: &[&str]) -> [PathBuf; 2] {
        let key = KeyPair::generate().unwrap();
        let certificate = parameters(names).signed_by(&key, &self.issuer).unwrap();
        put(folder, file, &certificate.pem(), &key)
    }
}

fn parameters(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
    CertificateParams::new(names).unwrap()
}

fn put(folder: &Path, file: &str, certificate: &str, key: &KeyPair) -> [PathBuf; 2] {
    [("pem", certificate), ("key", &key.serialize_pem())].map(|(ending, text)| {
        let (path, new) = (folder.join(format!("{file}.{ending}")), folder.join("new"));
        fs::write(&new, text).unwrap();
        fs::rename(&new, &path).unwrap();
        path
    })
}
