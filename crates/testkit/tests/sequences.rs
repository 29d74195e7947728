//! Every sequence on the core.

use std::path::PathBuf;

use fordway_testkit::vector::sequence::{CoreNat64, Stateful, check_sequence, load_sequence};
use fordway_testkit::vector::{vectors_dir, walk_sequences};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let folder = std::env::var_os("FORDWAY_VECTORS").map_or_else(vectors_dir, PathBuf::from);
    let found = walk_sequences(&folder).expect("the folder of vectors");
    let trials = found.into_iter().map(|(name, path)| {
        let sequence = load_sequence(&name, &path);
        let skip = match &sequence {
            Ok(sequence) => sequence.skip.get(CoreNat64.name()).cloned(),
            Err(_) => None,
        };
        let trial = Trial::test(name.clone(), move || {
            let sequence = sequence.map_err(|error| format!("{name}: {error}"))?;
            match check_sequence(&mut CoreNat64, &sequence) {
                Ok(None) => Ok(()),
                Ok(Some(mismatch)) => Err(Failed::from(mismatch.to_string())),
                Err(error) => Err(Failed::from(format!("{name}: {error}"))),
            }
        });
        match skip {
            Some(reason) => trial.with_kind(reason).with_ignored_flag(true),
            None => trial,
        }
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
