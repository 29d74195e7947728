//! Unpredictable octets for identifiers and the case of names (RFC 5452 section 9.2).

use std::cell::RefCell;

/// How many octets are taken from the kernel at once.
const STOCK: usize = 2048;

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { octets: [0; STOCK], used: STOCK }) };
}

struct Pool {
    octets: [u8; STOCK],
    used: usize,
}

/// Octets from the kernel's generator; each is given out once.
pub(super) fn octets<const N: usize>() -> std::io::Result<[u8; N]> {
    const { assert!(N <= STOCK) };
    POOL.with_borrow_mut(|pool| {
        if pool.used + N > STOCK {
            getrandom::fill(&mut pool.octets)?;
            pool.used = 0;
        }
        let mut taken = [0; N];
        let place = &mut pool.octets[pool.used..pool.used + N];
        taken.copy_from_slice(place);
        // What has been given out does not stay in memory.
        place.fill(0);
        pool.used += N;
        Ok(taken)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn nothing_is_given_out_twice() {
        let drawn: HashSet<[u8; 16]> = (0..1000).map(|_| super::octets::<16>().unwrap()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
