use fordway_testkit::tap::{from_vnet, to_vnet};
use fordway_xlat::{ChecksumState, Gso, GsoKind, Offload};

#[test]
fn states_survive_the_header() {
    let checksum = ChecksumState::Partial { start: 40, offset: 16 };
    let gso = Gso { kind: GsoKind::TcpV6, ecn: true, size: 1440, header_len: 0 };
    for offload in [
        Offload { checksum, gso },
        Offload { checksum, gso: Gso::default() },
        Offload { checksum: ChecksumState::Verified, gso: Gso::default() },
        Offload::default(),
    ] {
        assert_eq!(from_vnet(&to_vnet(&offload)), offload);
    }
}
