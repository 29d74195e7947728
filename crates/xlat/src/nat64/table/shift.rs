//! What an ALG has added to the sequence numbers of a connection, kept in the tables: so that the connection survives a
//! process that is killed.

use core::sync::atomic::Ordering::Relaxed;

use super::{Bib, Session, SessionKey, View, session_seen};

impl<'a> View<'a> {
    fn shifted(&self, key: &SessionKey) -> Option<(u32, &'a Session, &'a Bib)> {
        let (index, session) = self.session(key)?;
        let bib = Self::entry(self.regions.bibs, session.bib.load(Relaxed))?;
        Some((index, session, bib))
    }

    /// Keeps what is added to the numbers of the IPv4 and of the IPv6 host. One for each BIB entry: of two
    /// connections from one port, the later.
    pub(crate) fn keep_shift(&self, key: &SessionKey, shift: [u32; 2]) {
        let Some((index, session, bib)) = self.shifted(key) else { return };
        let before = bib.alg_session.swap(index, Relaxed);
        for (kept, shift) in bib.alg_shift.iter().zip(shift) {
            kept.store(shift, Relaxed);
        }
        session.seen.fetch_or(session_seen::SHIFTED, Relaxed);
        self.note(before);
        self.note(index);
    }

    /// What was kept of a session; `None`: its numbers are the same on both sides.
    pub(crate) fn kept_shift(&self, key: &SessionKey) -> Option<[u32; 2]> {
        let (index, session, bib) = self.shifted(key)?;
        let is_kept = session.seen.load(Relaxed) & session_seen::SHIFTED != 0
            && bib.alg_session.load(Relaxed) == index;
        is_kept.then(|| [0, 1].map(|side: usize| bib.alg_shift[side].load(Relaxed)))
    }
}
