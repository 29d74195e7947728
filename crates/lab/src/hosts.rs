//! Two hosts joined by a wire: client, translators and router on one, the server on the other.
//!
//! | module | concern |
//! |---|---|
//! | `ssh` | a connection by OpenSSH, and commands over it |
//! | `deploy` | the lab's own programs on the other host |
//! | `orders` | what the lab's end on the other host is asked |
//! | `far`, `there` | this end of it, and of a mechanism there |
//! | `pair`, `ends` | both hosts of a run, as its back end |
//! | `record` | what the hosts were like |
//! | `check` | `doctor` for hosts |

pub(crate) mod check;
mod deploy;
mod ends;
mod far;
pub(crate) mod orders;
mod pair;
pub(crate) mod record;
mod ssh;
mod there;

pub(crate) use ends::Ends;
pub(crate) use far::{Far, Held};
pub(crate) use pair::Pair;

/// What marks a machine as one that the lab may load and change.
pub(crate) const MARK: &str = "/etc/fordway-lab-host";

/// Makes the mark on this machine; the text says how it came there.
pub(crate) fn mark_words() -> String {
    format!(
        "Marked on {} as a lab host: fordway-lab may load this machine to its limits.\n\
         Remove this file to forbid it.\n",
        crate::host::now()
    )
}
