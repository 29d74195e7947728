//! Errors as CNI has them.

use serde::Serialize;

/// Error codes: those of the CNI specification 1.1 (section 5, "Error"), and from 100 on the plugin's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Incompatible CNI version.
    Version = 1,
    /// Unsupported field in the network configuration.
    Field = 2,
    /// The container is unknown or does not exist.
    NoContainer = 3,
    /// Invalid environment variables.
    Environment = 4,
    /// Reading or writing failed, here: the kernel or a file refused something.
    Io = 5,
    /// The configuration is no JSON, or not of the expected form.
    Decoding = 6,
    /// The network configuration can't work.
    Configuration = 7,
    /// Worth another attempt later.
    Later = 11,
    /// The plugin can't serve ADD.
    NotAvailable = 50,
    /// The plugin can't serve ADD, and pods that have a CLAT may have lost it.
    Limited = 51,
    /// The previous result has no interface or address for the CLAT.
    PreviousResult = 100,
    /// The pod has no route to the translation prefix.
    NoRoute = 101,
    /// CHECK found something that is not as ADD left it.
    Changed = 102,
    /// A run that was limited to some steps has ended ([`Steps`](crate::Steps)).
    Interrupted = 103,
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}{details}", if details.is_empty() { "" } else { ": " })]
pub struct Failure {
    /// The code.
    pub code: Code,
    /// One clause.
    pub message: String,
    /// More, or nothing.
    pub details: String,
}

/// An error as the plugin prints it.
#[derive(Debug, Serialize)]
struct Printed<'a> {
    #[serde(rename = "cniVersion")]
    version: &'a str,
    code: u32,
    msg: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    details: &'a str,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Failure { code, message: message.into(), details: String::new() }
    }

    pub(crate) fn details(self, details: impl Into<String>) -> Self {
        Failure { details: details.into(), ..self }
    }

    /// The JSON object that CNI expects on standard output.
    #[must_use]
    pub fn json(&self, version: &str) -> String {
        let printed =
            Printed { version, code: self.code as u32, msg: &self.message, details: &self.details };
        serde_json::to_string(&printed).unwrap_or_default()
    }
}

impl From<fordway_net::Error> for Failure {
    fn from(error: fordway_net::Error) -> Self {
        let hint = error.hint().unwrap_or_default();
        Failure::new(Code::Io, error.to_string()).details(hint)
    }
}

impl From<fordway_bpf::Error> for Failure {
    fn from(error: fordway_bpf::Error) -> Self {
        let code = match error {
            fordway_bpf::Error::Unsupported(_) => Code::NotAvailable,
            _ => Code::Io,
        };
        Failure::new(code, error.to_string()).details(error.hint().unwrap_or_default())
    }
}

impl From<fordway_bpf::Unsupported> for Failure {
    fn from(unsupported: fordway_bpf::Unsupported) -> Self {
        fordway_bpf::Error::from(unsupported).into()
    }
}
