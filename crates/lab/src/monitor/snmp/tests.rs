use super::*;

#[test]
fn ticks_make_a_share_and_counters_that_stand_still_make_none() {
    assert_eq!(busy_share((10, 90), (30, 170)), Ok(20.0));
    assert!(busy_share((10, 90), (10, 90)).is_err());
    assert!(busy_share((0, 0), (30, 170)).is_err());
    assert!(busy_share((4_294_967_290, 90), (10, 170)).is_err());
}

#[test]
fn every_object_has_a_number() {
    let one = [PROCESSOR_LOAD, STORAGE_TYPE, STORAGE_RAM, STORAGE_SIZE, STORAGE_USED];
    let many = [&one[..], &RAW_BUSY, &RAW_IDLE, &MEMORY, &OCTETS_64, &OCTETS_32];
    for oid in many.concat() {
        let parsed: snmp2::Oid<'_> = oid.parse().unwrap();
        assert_eq!(parsed.to_id_string(), oid);
    }
}
