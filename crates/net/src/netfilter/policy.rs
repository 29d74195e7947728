//! What an nftables table of this program is made for: one way to find, make and delete it.

use super::{Ip, Netfilter, Present, Table};
use crate::Result;

/// What has an nftables table of its own.
pub(crate) trait Policy {
    /// The IP version of its packets.
    fn ip(&self) -> Ip {
        Ip::V4
    }

    /// Name of the table.
    fn name(&self) -> String;

    /// The table. Where a kernel lacks an expression of the first, the next is made.
    fn contents(&self) -> Vec<Table>;

    /// Looks for the table.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Netfilter`], [`crate::Error::Answer`].
    fn find(&self) -> Result<Option<Found>> {
        let present = Netfilter::open(self.ip(), |it| it.find(&self.name()))?;
        let is_current = |it: &Present| self.contents().iter().any(|table| it.is(table));
        Ok(present.map(|it| Found { ours: it.is_ours(), current: is_current(&it) }))
    }

    /// Makes the table, or replaces an earlier one of this program at once.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Netfilter`], with `EEXIST` if the table is another program's.
    fn make(&self) -> Result<()> {
        let mut first_error = None;
        for table in self.contents() {
            match Netfilter::open(self.ip(), |it| it.replace_own(&table)) {
                Ok(()) => return Ok(()),
                Err(error) if error.errno().is_some_and(|errno| MISSING.contains(&errno)) => {
                    first_error.get_or_insert(error);
                }
                Err(error) => return Err(first_error.unwrap_or(error)),
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Deletes the table.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Netfilter`], with `ENOENT` if there is none.
    fn delete(&self) -> Result<()> {
        Netfilter::open(self.ip(), |it| it.delete(&self.name()))
    }
}

/// What a kernel says to an expression that it does not have.
const MISSING: [i32; 3] = [libc::ENOENT, libc::EOPNOTSUPP, libc::EPROTONOSUPPORT];

/// A table that exists.
#[derive(Debug)]
pub(crate) struct Found {
    /// This program has made it.
    pub(crate) ours: bool,
    /// Its content is the policy's.
    pub(crate) current: bool,
}
