//! The command line as people see it: help, errors, results.
//!
//! With TRYCMD=overwrite the files take what the program says now.

#[test]
fn what_the_commands_say() {
    trycmd::TestCases::new().env("NO_COLOR", "1").case("tests/cmd/*.trycmd");
}
