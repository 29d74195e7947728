//! Placement: which gateway should own a shard, by weighted rendezvous hashing.
//!
//! Each gateway has a number for each shard, an exponentially distributed one divided by the gateway's weight; the least
//! wins. If a gateway leaves, the order of the others stays. All arithmetic is on integers, so that all gateways agree.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::record::Member;
use crate::shard::Shard;

/// Fraction bits of logarithms.
const FRACTION: u32 = 32;

/// -log2((hash + 1) / 2^64), with [`FRACTION`] bits behind the point.
fn minus_log2(hash: u64) -> u64 {
    let number = u128::from(hash) + 1;
    let whole = number.ilog2();
    // In [1, 2), with 63 bits behind the point.
    let mut part = (number << (127 - whole)) >> 64;
    let mut log = u64::from(whole) << FRACTION;
    for bit in (0..FRACTION).rev() {
        part = (part * part) >> 63;
        if part >> 64 != 0 {
            part >>= 1;
            log |= 1 << bit;
        }
    }
    (64 << FRACTION) - log
}

/// The gateways in the order in which they should own a shard, from pairs with their weights; those of weight 0 never.
#[must_use]
pub fn ranking(
    key: [u64; 2],
    shard: Shard,
    members: impl IntoIterator<Item = (Member, u32)>,
) -> Vec<Member> {
    let cost = |member: Member| {
        let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
        hasher.write_u32(u32::from(shard.0) << 16 | u32::from(member.0));
        minus_log2(hasher.finish())
    };
    let mut all: Vec<_> = members
        .into_iter()
        .filter(|(_, weight)| *weight != 0)
        .map(|(member, weight)| (cost(member), u64::from(weight), member))
        .collect();
    // a / weight of a < b / weight of b
    all.sort_by_key(|(_, _, member)| *member);
    all.sort_by(|(a, a_weight, _), (b, b_weight, _)| {
        (u128::from(*a) * u128::from(*b_weight)).cmp(&(u128::from(*b) * u128::from(*a_weight)))
    });
    all.into_iter().map(|(_, _, member)| member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: [u64; 2] = [7, 11];

    fn members(number: u16) -> Vec<(Member, u32)> {
        (0..number).map(|n| (Member(n), 100)).collect()
    }

    #[test]
    fn the_logarithm_is_one() {
        assert_eq!(minus_log2(u64::MAX), 0);
        assert_eq!(minus_log2(0), 64 << FRACTION);
        for hash in [1, 5, 1 << 40, u64::MAX / 3, u64::MAX - 7] {
            let exact = 64.0 - (hash as f64 + 1.0).log2();
            let found = minus_log2(hash) as f64 / f64::from(u32::MAX);
            assert!((found - exact).abs() < 1e-6, "{hash}: {found} {exact}");
        }
    }

    #[test]
    fn shares_follow_weights() {
        let all = [(Member(1), 100), (Member(2), 100), (Member(3), 200)];
        let mut own = [0; 4];
        for shard in (0..1024).map(Shard) {
            own[usize::from(ranking(KEY, shard, all)[0].0)] += 1;
        }
        assert!((216..296).contains(&own[1]) && (216..296).contains(&own[2]), "{own:?}");
        assert!((452..572).contains(&own[3]), "{own:?}");
    }

    #[test]
    fn one_without_weight_owns_nothing() {
        assert_eq!(ranking(KEY, Shard(1), [(Member(1), 0), (Member(2), 1)]), [Member(2)]);
    }

    #[test]
    fn a_fixed_ranking_stays() {
        // Another version must rank alike: gateways of both are members during an upgrade.
        let numbers = |shard| ranking(KEY, Shard(shard), members(5)).iter().map(|m| m.0).collect();
        let found: [Vec<u16>; 3] = [0, 1, 2].map(numbers);
        assert_eq!(found, FIXED.map(Vec::from));
    }

    const FIXED: [[u16; 5]; 3] = [[4, 0, 1, 3, 2], [2, 3, 1, 4, 0], [0, 3, 2, 1, 4]];

    proptest! {
        #[test]
        fn the_order_of_others_stays_when_one_leaves(number in 2_u16..20, leaver in 0_u16..20, shard in 0_u16..1024) {
            let leaver = Member(leaver % number);
            let before = ranking(KEY, Shard(shard), members(number));
            let after = ranking(KEY, Shard(shard), members(number).into_iter().filter(|m| m.0 != leaver));
            let expected: Vec<_> = before.into_iter().filter(|m| *m != leaver).collect();
            prop_assert_eq!(after, expected);
        }

        #[test]
        fn the_order_given_does_not_matter(number in 2_u16..20, shard in 0_u16..1024) {
            let reversed = members(number).into_iter().rev();
            prop_assert_eq!(ranking(KEY, Shard(shard), members(number)), ranking(KEY, Shard(shard), reversed));
        }

        #[test]
        fn each_owns_about_its_share(number in 2_u16..17) {
            let mut own = vec![0_u32; number.into()];
            for shard in (0..1024).map(Shard) {
                let order = ranking(KEY, shard, members(number));
                prop_assert!(order[0] != order[1]);
                own[usize::from(order[0].0)] += 1;
            }
            let share = 1024 / u32::from(number);
            let most = share + 4 * share.isqrt() + 4;
            prop_assert!(own.iter().all(|n| *n <= most && n + 4 * share.isqrt() + 4 >= share), "{:?}", own);
        }
    }
}
