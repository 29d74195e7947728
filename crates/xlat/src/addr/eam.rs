//! Explicit address mappings (RFC 7757).

use alloc::vec::Vec;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use super::classify;

/// One explicit address mapping: an IPv4 prefix and an IPv6 prefix (RFC 7757 section 3.2).
///
/// The IPv4 prefix has at most as many suffix bits as the IPv6 prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eam {
    v4: Ipv4Net,
    v6: Ipv6Net,
}

/// Why a mapping, or a table of them, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EamError {
    /// RFC 7757 section 3.2.
    #[error(
        "{eam}: the IPv4 prefix has {v4} suffix bits, more than the IPv6 prefix's {v6} (RFC 7757 section 3.2)",
        eam = .0, v4 = 32 - .0.v4.prefix_len(), v6 = 128 - u16::from(.0.v6.prefix_len())
    )]
    Suffix(Eam),
    /// Host bits.
    #[error("{0}: bits are set behind a prefix length")]
    HostBits(Eam),
    /// A prefix of nothing but addresses that can't be on a wire. Translated packets would go there.
    #[error("{0}: a prefix of multicast, link-local, loopback or reserved addresses")]
    NotUnicast(Eam),
    /// The same IPv4 or IPv6 prefix in two mappings.
    #[error("{0} and {1} share a prefix (RFC 7757 section 5)")]
    Duplicate(Eam, Eam),
}

/// Two mappings whose prefixes overlap in one family, so that translation there and back may differ
/// (RFC 7757 section 5). Allowed; operators are warned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The shorter prefix's mapping.
    pub outer: Eam,
    /// The longer prefix's mapping.
    pub inner: Eam,
}

impl Eam {
    /// A mapping between `v4` and `v6`.
    pub fn new(v4: Ipv4Net, v6: Ipv6Net) -> Result<Eam, EamError> {
        let eam = Eam { v4, v6 };
        if v4.network() != v4.addr() || v6.network() != v6.addr() {
            return Err(EamError::HostBits(eam));
        }
        if 32 - v4.prefix_len() > 128 - v6.prefix_len() {
            return Err(EamError::Suffix(eam));
        }
        // A prefix lies in one such network if both its ends do.
        let illegal4 = classify::illegal_v4(v4.network());
        let illegal6 = classify::illegal_v6(v6.network());
        if illegal4.is_some() && illegal4 == classify::illegal_v4(v4.broadcast())
            || illegal6.is_some() && illegal6 == classify::illegal_v6(v6.broadcast())
        {
            return Err(EamError::NotUnicast(eam));
        }
        Ok(eam)
    }

    /// The IPv4 prefix.
    pub fn v4(&self) -> Ipv4Net {
        self.v4
    }

    /// The IPv6 prefix.
    pub fn v6(&self) -> Ipv6Net {
        self.v6
    }

    /// RFC 7757 section 3.3.1: the suffix of `addr` behind the IPv6 prefix, padded with zeros.
    #[inline]
    fn embed(&self, addr: Ipv4Addr) -> Ipv6Addr {
        let suffix = u128::from(addr.to_bits() & suffix_mask_v4(self.v4.prefix_len()));
        let suffix_bits = 32 - u32::from(self.v4.prefix_len());
        let room = 128 - u32::from(self.v6.prefix_len());
        // `room` is at least `suffix_bits`; a shift by 128 happens only for an empty suffix.
        let shifted = suffix.checked_shl(room - suffix_bits).unwrap_or(0);
        Ipv6Addr::from_bits(self.v6.addr().to_bits() | shifted)
    }

    /// RFC 7757 section 3.3.2: the first suffix bits of `addr` behind the IPv4 prefix, the rest
    /// discarded.
    #[inline]
    fn extract(&self, addr: Ipv6Addr) -> Ipv4Addr {
        let suffix_bits = 32 - u32::from(self.v4.prefix_len());
        let room = 128 - u32::from(self.v6.prefix_len());
        let shifted = addr.to_bits().checked_shr(room - suffix_bits).unwrap_or(0) as u32;
        let suffix = shifted & suffix_mask_v4(self.v4.prefix_len());
        Ipv4Addr::from_bits(self.v4.addr().to_bits() | suffix)
    }
}

impl fmt::Display for Eam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.v4, self.v6)
    }
}

/// The explicit address mapping table (RFC 7757 section 3.1), made for longest-prefix look-up.
///
/// Built once; look-ups do not allocate. A look-up is one binary search per distinct prefix length.
#[derive(Clone, Debug, Default)]
pub struct EamTable {
    entries: Vec<Eam>,
    v4: Vec<Level<u32>>,
    v6: Vec<Level<u128>>,
}

/// The mappings that share one prefix length, sorted by prefix value; the longest length first.
#[derive(Clone, Debug)]
struct Level<T> {
    len: u8,
    rows: Vec<(T, u32)>,
}

impl EamTable {
    /// A table of these mappings.
    pub fn new(entries: impl IntoIterator<Item = Eam>) -> Result<EamTable, EamError> {
        let entries: Vec<Eam> = entries.into_iter().collect();
        let v4 = levels(&entries, |eam| (eam.v4.addr().to_bits(), eam.v4.prefix_len()))?;
        let v6 = levels(&entries, |eam| (eam.v6.addr().to_bits(), eam.v6.prefix_len()))?;
        Ok(EamTable { entries, v4, v6 })
    }

    /// The mappings, in the order given.
    pub fn entries(&self) -> &[Eam] {
        &self.entries
    }

    /// Whether there is no mapping.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// RFC 7757 section 3.3.1.
    #[inline]
    pub fn v4_to_v6(&self, addr: Ipv4Addr) -> Option<(Ipv6Addr, Eam)> {
        let eam = self.longest(&self.v4, |len| addr.to_bits() & !suffix_mask_v4(len))?;
        Some((eam.embed(addr), *eam))
    }

    /// RFC 7757 section 3.3.2.
    #[inline]
    pub fn v6_to_v4(&self, addr: Ipv6Addr) -> Option<(Ipv4Addr, Eam)> {
        let eam = self.longest(&self.v6, |len| addr.to_bits() & !suffix_mask_v6(len))?;
        Some((eam.extract(addr), *eam))
    }

    /// The mapping with the longest prefix; `prefix` gives the address's prefix of a length.
    #[inline]
    fn longest<T: Ord>(&self, levels: &[Level<T>], prefix: impl Fn(u8) -> T) -> Option<&Eam> {
        levels.iter().find_map(|level| {
            let key = prefix(level.len);
            let at = level.rows.binary_search_by(|row| row.0.cmp(&key)).ok()?;
            self.entries.get(level.rows[at].1 as usize)
        })
    }

    /// Pairs of mappings that overlap in one family. Each mapping is compared with the longest
    /// shorter prefix that covers it.
    pub fn overlaps(&self) -> Vec<Overlap> {
        let mut found = self.overlaps_in(&self.v4, |bits, len| bits & !suffix_mask_v4(len));
        found.extend(self.overlaps_in(&self.v6, |bits, len| bits & !suffix_mask_v6(len)));
        found
    }

    fn overlaps_in<T: Ord + Copy>(
        &self,
        levels: &[Level<T>],
        prefix: impl Fn(T, u8) -> T,
    ) -> Vec<Overlap> {
        let mut found = Vec::new();
        for (depth, level) in levels.iter().enumerate() {
            for &(bits, inner) in &level.rows {
                let outer = self.longest(&levels[depth + 1..], |len| prefix(bits, len));
                let inner = self.entries[inner as usize];
                found.extend(outer.map(|outer| Overlap { outer: *outer, inner }));
            }
        }
        found
    }
}

/// Sorts the mappings by prefix length and value, and refuses a prefix that stands twice.
fn levels<T: Ord + Copy>(
    entries: &[Eam],
    key: impl Fn(&Eam) -> (T, u8),
) -> Result<Vec<Level<T>>, EamError> {
    let mut keyed: Vec<(core::cmp::Reverse<u8>, T, u32)> = Vec::with_capacity(entries.len());
    for (index, eam) in (0u32..).zip(entries) {
        let (bits, len) = key(eam);
        keyed.push((core::cmp::Reverse(len), bits, index));
    }
    keyed.sort_unstable();
    let mut levels: Vec<Level<T>> = Vec::new();
    for (len, bits, index) in keyed {
        match levels.last_mut() {
            Some(level) if level.len == len.0 => {
                if let Some(&(last, first)) = level.rows.last()
                    && last == bits
                {
                    let (first, second) = (entries[first as usize], entries[index as usize]);
                    return Err(EamError::Duplicate(first, second));
                }
                level.rows.push((bits, index));
            }
            _ => levels.push(Level { len: len.0, rows: alloc::vec![(bits, index)] }),
        }
    }
    Ok(levels)
}

#[inline]
fn suffix_mask_v4(len: u8) -> u32 {
    u32::MAX.checked_shr(u32::from(len)).unwrap_or(0)
}

#[inline]
fn suffix_mask_v6(len: u8) -> u128 {
    u128::MAX.checked_shr(u32::from(len)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
