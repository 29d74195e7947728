//! Whether a discovered prefix belongs to a trusted domain (RFC 7050 section 3.1.2).
//!
//! ```text
//! Pref64::WKA --PTR--> NAT64 FQDN, in a trusted domain --AAAA, secure--> Pref64::WKA
//! ```

use std::fmt;

use hickory_proto::rr::{Name, RecordType};

use super::answer::Outcome;
use super::heuristic::Candidate;

/// Names of one address that are tried at most.
const MOST_NAMES: usize = 4;

/// Whether anything proves a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// Nothing was tried: no domain is trusted, or it was not yet.
    #[default]
    NotTried,
    /// The path to the resolver is secure.
    SecureChannel,
    /// A name in a trusted domain has the address, which DNSSEC proves.
    Dnssec {
        /// The name of the translator.
        name: Name,
    },
    /// Validation failed.
    Failed(Unproved),
    /// Not needed: the operator says so, or a router advertisement (RFC 8781 section 7).
    NotNeeded,
}

impl Validation {
    /// Whether the prefix may be used where only proved ones may be.
    #[must_use]
    pub fn is_proved(&self) -> bool {
        !matches!(self, Validation::NotTried | Validation::Failed(_))
    }
}

/// Why a prefix is not proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unproved {
    /// The Well-Known Prefix belongs to no domain, so no name can prove it.
    WellKnownPrefix,
    /// No name for its addresses.
    NoName,
    /// No name for its addresses is in a trusted domain.
    Untrusted(Name),
    /// The trusted name does not have its addresses.
    OtherAddresses(Name),
    /// The trusted name has its addresses, but nothing proves that.
    Insecure(Name),
}

impl fmt::Display for Unproved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unproved::WellKnownPrefix => f.write_str("the Well-Known Prefix has no owner"),
            Unproved::NoName => f.write_str("its addresses have no name"),
            Unproved::Untrusted(name) => write!(f, "its name {name} is in no trusted domain"),
            Unproved::OtherAddresses(name) => write!(f, "its name {name} has other addresses"),
            Unproved::Insecure(name) => {
                write!(f, "the addresses of {name} are not proved by DNSSEC")
            }
        }
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask for these records; with AD in the question.
    Ask {
        /// Their name.
        name: Name,
        /// Their type.
        record_type: RecordType,
    },
    /// That is the result.
    Done(Validation),
}

/// The procedure for one prefix: [`Validator::step`], ask, [`Validator::answer`], and again.
#[derive(Clone, Debug)]
pub struct Validator {
    candidate: Candidate,
    trusted: Vec<Name>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Step 2: the names of this address.
    Reverse {
        address: usize,
        untrusted: Option<Name>,
    },
    /// Step 4: the addresses of the first of these names.
    Forward {
        names: Vec<Name>,
        failed: Option<Unproved>,
    },
    Done(Validation),
}

impl Validator {
    /// Begins with a prefix that was found, and the domains that are trusted.
    #[must_use]
    pub fn new(candidate: Candidate, trusted: &[Name]) -> Self {
        let state = if trusted.is_empty() {
            State::Done(Validation::NotTried)
        } else if candidate.pool6.is_well_known() {
            // RFC 7050 section 3.1: "DNSSEC validation cannot be utilized in the case of a WKP".
            State::Done(Validation::Failed(Unproved::WellKnownPrefix))
        } else {
            State::Reverse { address: 0, untrusted: None }
        };
        Self { candidate, trusted: trusted.to_vec(), state }
    }

    /// What to do next.
    #[must_use]
    pub fn step(&self) -> Step {
        match &self.state {
            State::Reverse { address, untrusted } => match self.candidate.addresses.get(*address) {
                Some(address) => {
                    Step::Ask { name: Name::from(*address), record_type: RecordType::PTR }
                }
                None => Step::Done(Validation::Failed(match untrusted {
                    Some(name) => Unproved::Untrusted(name.clone()),
                    None => Unproved::NoName,
                })),
            },
            State::Forward { names, failed } => match names.first() {
                Some(name) => Step::Ask { name: name.clone(), record_type: RecordType::AAAA },
                None => {
                    let failed = failed.clone().unwrap_or(Unproved::NoName);
                    Step::Done(Validation::Failed(failed))
                }
            },
            State::Done(validation) => Step::Done(validation.clone()),
        }
    }

    /// Handles the answer to the last [`Step::Ask`]. `secure`: its AD bit is trustworthy, because it can't have been
    /// set on the way.
    pub fn answer(&mut self, outcome: &Outcome, secure: bool) {
        match &mut self.state {
            State::Reverse { address, untrusted } => {
                let names = outcome.names();
                // Step 3: without trust in a domain, the remaining steps must not be done.
                let trusted = |name: &&Name| self.trusted.iter().any(|zone| zone.zone_of(name));
                let chosen: Vec<Name> =
                    names.iter().filter(trusted).take(MOST_NAMES).cloned().collect();
                if chosen.is_empty() {
                    if untrusted.is_none() {
                        *untrusted = names.into_iter().next();
                    }
                    *address += 1;
                } else {
                    self.state = State::Forward { names: chosen, failed: None };
                }
            }
            State::Forward { names, failed } => {
                if names.is_empty() {
                    return;
                }
                let name = names.remove(0);
                // Step 5: any of its addresses has to be one of those of step 1.
                let ours = &self.candidate.addresses;
                let matches = outcome.addresses().iter().any(|one| ours.contains(one));
                // Step 6.
                let proved =
                    secure && matches!(outcome, Outcome::Records { authenticated: true, .. });
                match (matches, proved) {
                    (true, true) => self.state = State::Done(Validation::Dnssec { name }),
                    (true, false) => *failed = Some(Unproved::Insecure(name)),
                    (false, _) => _ = failed.get_or_insert(Unproved::OtherAddresses(name)),
                }
            }
            State::Done(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
