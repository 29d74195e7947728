//! What a DNS64 server has cached.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An upstream server's answer that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheRow {
    /// The name, in lower case, as zone files have it.
    pub name: String,
    /// The type, such as `AAAA`.
    #[serde(rename = "type")]
    pub record_type: String,
    /// The class, `IN` as a rule.
    pub class: String,
    /// Asked for with signatures (DO).
    pub dnssec_ok: bool,
    /// Asked for without validation (CD).
    pub checking_disabled: bool,
    /// For how many seconds it holds; none: it has expired, and stays until its room is needed or it is asked for again.
    pub seconds: Option<u64>,
    /// The response code, such as `NOERROR`; none: there was no answer.
    pub code: Option<String>,
    /// Why there was no answer.
    pub failure: Option<String>,
    /// What validation found: `unchecked`, `secure`, `insecure`, `bogus`.
    pub security: String,
    /// The answer section, as zone files have it, with the TTLs that are left.
    pub records: Vec<String>,
}
