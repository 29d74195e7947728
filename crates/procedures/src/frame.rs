//! Frame sizes and theoretical maximum frame rates (RFC 8219 section 5.1, appendix A).

use serde::{Deserialize, Serialize};

/// Sizes for Ethernet, octets with FCS (RFC 8219 section 5.1.1).
pub const SIZES: [u16; 13] =
    [64, 128, 256, 512, 768, 1024, 1280, 1518, 1522, 2048, 4096, 8192, 9216];
/// Smallest frame from IPv6 to IPv4: after translation it has 64 octets (RFC 8219 section 5.1.1).
pub const LEAST_V6: u16 = 84;
/// Octets that an IPv6 header has more than an IPv4 header.
pub const TRANSLATION: u16 = 20;
/// Octets of the IPv6 header in front of an encapsulated packet.
pub const ENCAPSULATION: u16 = 40;
/// Ethernet header and FCS.
pub const ETHERNET: u16 = 18;
/// Smallest MTU of IPv6 (RFC 8200 section 5).
pub const LEAST_MTU: u16 = 1280;
/// Preamble and minimum gap between frames, octets (RFC 8219 appendix A).
const GAP: u32 = 20;

/// How a technology crosses the core domain (RFC 8219 section 1.1, section 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Technology {
    /// Single translation: the Initiator's side is IPv6, the Responder's IPv4 (SIIT, NAT64, NAT-PT).
    SingleTranslation,
    /// Double translation: IPv4 on both sides, IPv6 in between (464XLAT, MAP-T).
    DoubleTranslation,
    /// IPv4 on both sides, in IPv6 packets in between (DS-Lite, lightweight 4over6).
    Encapsulation,
    /// One IP version throughout (NAT44, NAT66, native forwarding).
    SameVersion,
}

impl Technology {
    /// Octets that the technology adds to a frame on some segment: O in appendix A.
    pub fn overhead(self) -> u16 {
        match self {
            Self::SingleTranslation | Self::DoubleTranslation => TRANSLATION,
            Self::Encapsulation => ENCAPSULATION,
            Self::SameVersion => 0,
        }
    }

    /// Least MTU that RFC 8219 section 5.1 recommends for every interface.
    pub fn recommended_mtu(self) -> u16 {
        LEAST_MTU + self.overhead()
    }
}

/// One frame on the segments of the test setup, octets with FCS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Size under which the result is reported.
    pub size: u16,
    /// On the Initiator's segment.
    pub initiator: u16,
    /// On the Responder's segment.
    pub responder: u16,
    /// On the segment where it is largest.
    pub widest: u16,
}

impl Frame {
    /// The frame of a size. With single translation the size is that of the IPv6 side, at least 84, and the IPv4 side is
    /// 20 octets shorter; with the other technologies it is that of the Tester's two sides.
    pub fn of(technology: Technology, size: u16) -> Self {
        match technology {
            Technology::SingleTranslation => {
                let v6 = size.max(LEAST_V6);
                Self { size, initiator: v6, responder: v6 - TRANSLATION, widest: v6 }
            }
            _ => {
                let widest = size.saturating_add(technology.overhead());
                Self { size, initiator: size, responder: size, widest }
            }
        }
    }

    /// Whether no segment has to fragment it.
    pub fn fits(&self, mtu: u16) -> bool {
        self.widest <= mtu.saturating_add(ETHERNET)
    }

    /// Theoretical maximum rate of an Ethernet of `line_rate` bit/s, frames/s in each direction (RFC 8219 appendix A).
    pub fn theoretical_maximum(&self, line_rate: f64) -> f64 {
        line_rate / (8.0 * f64::from(u32::from(self.widest) + GAP))
    }
}

/// The frames of section 5.1.1 that fit an MTU, and the sizes that do not.
pub fn frames(technology: Technology, mtu: u16) -> (Vec<Frame>, Vec<u16>) {
    let all = SIZES.map(|size| Frame::of(technology, size));
    let (fit, others): (Vec<Frame>, Vec<Frame>) = all.into_iter().partition(|f| f.fits(mtu));
    (fit, others.into_iter().map(|frame| frame.size).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_translation_has_64_octets_on_the_ipv4_side_at_least() {
        let frame = Frame::of(Technology::SingleTranslation, 64);
        assert_eq!((frame.size, frame.initiator, frame.responder), (64, 84, 64));
        let frame = Frame::of(Technology::SingleTranslation, 512);
        assert_eq!((frame.initiator, frame.responder, frame.widest), (512, 492, 512));
    }

    #[test]
    fn the_core_segment_counts_for_two_devices() {
        assert_eq!(Frame::of(Technology::DoubleTranslation, 128).widest, 148);
        assert_eq!(Frame::of(Technology::Encapsulation, 128).widest, 168);
        assert_eq!(Frame::of(Technology::SameVersion, 128).widest, 128);
    }

    #[test]
    fn sizes_beyond_the_mtu_are_named() {
        let (fit, others) = frames(Technology::SingleTranslation, 1500);
        assert_eq!(fit.last().map(|f| f.size), Some(1518));
        assert_eq!(others, [1522, 2048, 4096, 8192, 9216]);
        let (fit, others) = frames(Technology::Encapsulation, 1500);
        assert_eq!((fit.last().map(|f| f.size), others[0]), (Some(1280), 1518));
        assert_eq!(frames(Technology::Encapsulation, 9300).1, [0u16; 0]);
        assert_eq!(Technology::Encapsulation.recommended_mtu(), 1320);
    }

    #[test]
    fn maximum_rates_are_those_of_appendix_a() {
        // 6in4 adds 20 octets: the published table, 10 Mb/s to 10 Gb/s.
        for (size, ten, ten_thousand) in
            [(64, 12_019.0, 12_019_231.0), (1518, 802.0, 802_311.0), (9216, 135.0, 135_048.0)]
        {
            let frame = Frame::of(Technology::DoubleTranslation, size);
            assert_eq!(frame.theoretical_maximum(10e6).floor(), ten);
            assert_eq!(frame.theoretical_maximum(10e9).round(), ten_thousand);
        }
    }
}
