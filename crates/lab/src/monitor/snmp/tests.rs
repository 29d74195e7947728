use super::*;

#[test]
fn ticks_make_a_share_and_counters_that_stand_still_make_none() {
    assert_eq!(busy_share((10, 90), (30, 170)), Ok(20.0));
    assert!(busy_share((10, 90), (10, 90)).is_err());
    assert!(busy_share((0, 0), (30, 170)).is_err());
    assert!(busy_share((4_294_967_290, 90), (10, 170)).is_err());
}

#[test]
fn an_agent_has_the_usual_port_unless_it_says_another() {
    let of = |text: &str| address(text).unwrap().to_string();
    assert_eq!(of("192.0.2.1"), "192.0.2.1:161");
    assert_eq!(of("2001:db8::1"), "[2001:db8::1]:161");
    assert_eq!(of("192.0.2.1:1161"), "192.0.2.1:1161");
    assert_eq!(of("[2001:db8::1]:1161"), "[2001:db8::1]:1161");
    assert!(address("no such name").is_err());
}

#[test]
fn silence_is_explained() {
    let said = in_words(&snmp2::Error::Receive, &Access::Community("x".into()));
    assert!(said.contains("community") && !said.contains('x'), "{said}");
}

#[test]
fn every_object_has_a_number() {
    let one = [SYS_DESCR, PROCESSOR_LOAD, STORAGE_TYPE, STORAGE_RAM, STORAGE_SIZE, STORAGE_USED];
    let many = [&one[..], &RAW_BUSY, &RAW_IDLE, &MEMORY, &INTERFACE_NAMES, &OCTETS_64, &OCTETS_32];
    for oid in many.concat() {
        assert_eq!(parse(oid).unwrap().to_id_string(), oid);
    }
}
