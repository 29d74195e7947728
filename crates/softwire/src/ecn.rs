//! Congestion notification through a tunnel (RFC 6040).

/// Not-ECT.
const NOT_ECT: u8 = 0b00;
/// ECT(1).
const ECT_1: u8 = 0b01;
/// CE: congestion experienced.
const CE: u8 = 0b11;

/// The two bits of the ECN field in an octet of Type of Service or Traffic Class.
pub(crate) const MASK: u8 = 0b11;

/// The ECN field of the packet that goes on, of the field of the packet in the tunnel and of the one around it.
/// `None`: it has to be dropped, since its sender would not understand the mark.
///
/// Source: RFC 6040 section 4.2, figure 4.
pub(crate) fn decapsulate(inner: u8, outer: u8) -> Option<u8> {
    match (inner & MASK, outer & MASK) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (_, CE) => Some(CE),
        (CE, _) => Some(CE),
        (_, ECT_1) => Some(ECT_1),
        (inner, _) => Some(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_4() {
        const ECT_0: u8 = 0b10;
        // Rows: the packet inside; columns: Not-ECT, ECT(0), ECT(1), CE around it.
        for (inner, row) in [
            (NOT_ECT, [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None]),
            (ECT_0, [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)]),
            (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
            (CE, [Some(CE), Some(CE), Some(CE), Some(CE)]),
        ] {
            for (outer, expected) in [NOT_ECT, ECT_0, ECT_1, CE].into_iter().zip(row) {
                assert_eq!(decapsulate(inner, outer), expected, "{inner:02b} in {outer:02b}");
                // The six bits of the DSCP are not looked at.
                assert_eq!(decapsulate(inner | 0xb8, outer | 0x28), expected);
            }
        }
    }
}
