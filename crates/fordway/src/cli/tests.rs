use clap::error::ErrorKind;

use super::*;

#[test]
fn a_command_is_there_or_its_feature_is_named() {
    for (feature, commands) in features::COMMANDS {
        for command in commands {
            let error = Cli::try_parse_from(["fordway", command, "--help"]).unwrap_err();
            assert_eq!(error.kind() == ErrorKind::DisplayHelp, feature.is_built_in(), "{command}");
            let left_out = (!feature.is_built_in()).then_some(feature);
            assert_eq!(features::left_out(&error), left_out, "{command}");
        }
    }
    let error = Cli::try_parse_from(["fordway", "dance"]).unwrap_err();
    assert_eq!(features::left_out(&error), None);
}
