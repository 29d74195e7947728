//! Every sample file, with what it gives: errors, warnings, or the whole configuration.
//!
//! With INSTA_UPDATE=always the snapshots take what it gives now.

use std::path::Path;

use fordway_config::{Loaded, Report, parse};

fn read(path: &Path) -> Result<Loaded, Report> {
    let text = std::fs::read_to_string(path).unwrap();
    parse(path.file_name().unwrap().to_str().unwrap(), &text)
}

fn settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_snapshot_path("../snapshots");
    settings.set_omit_expression(true);
    settings
}

#[test]
fn invalid_files_say_where_and_what() {
    settings().bind(|| {
        insta::glob!("..", "invalid/*.toml", |path| {
            let report = read(path).expect_err("this file must be refused");
            assert!(report.has_errors());
            insta::assert_snapshot!(report.render(false));
        });
    });
}

#[test]
fn doubtful_files_are_taken_with_a_warning() {
    settings().bind(|| {
        insta::glob!("..", "warnings/*.toml", |path| {
            let loaded = read(path).unwrap_or_else(|report| panic!("{report}"));
            assert!(!loaded.warnings.is_empty() && !loaded.warnings.has_errors());
            insta::assert_snapshot!(loaded.warnings.render(false));
        });
    });
}

#[test]
fn valid_files_are_written_out_whole_and_read_back() {
    settings().bind(|| {
        insta::glob!("..", "valid/*.toml", |path| {
            let loaded = read(path).unwrap_or_else(|report| panic!("{report}"));
            assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
            let written = loaded.config.to_string();
            let again = parse("written", &written).unwrap_or_else(|report| panic!("{report}"));
            assert_eq!(again.config, loaded.config);
            assert_eq!(again.config.to_string(), written);
            insta::assert_snapshot!(written);
        });
    });
}
