//! Certificates of their own authority.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair};

/// Writes a certificate for names, and its key, as one would, whole in the place of those that were there: `file`.pem and
/// `file`.key.
#[allow(clippy::missing_panics_doc)]
pub fn write(folder: &Path, file: &str, names: &[&str]) -> [PathBuf; 2] {
    let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    [("pem", certificate.pem()), ("key", key.serialize_pem())].map(|(ending, text)| {
        let (path, new) = (folder.join(format!("{file}.{ending}")), folder.join("new"));
        fs::write(&new, text).unwrap();
        fs::rename(&new, &path).unwrap();
        path
    })
}
