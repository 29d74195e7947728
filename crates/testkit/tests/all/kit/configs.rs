use fordway_testkit::fuzz::{CONFIGS, translator};

#[test]
fn every_configuration_makes_a_translator() {
    for number in 0..CONFIGS.len() {
        translator(number as u8);
    }
}
