//! Every vector on the core.

use fordway_testkit::vector::{Applies, Core, Subject, check, load, vectors_dir, walk};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let found = walk(&vectors_dir()).expect("the folder of vectors");
    let trials = found.into_iter().map(|(name, path)| {
        let case = load(&name, &path);
        let applies = case.as_ref().map_or(Applies::Yes, |case| Core.applies(case));
        let trial = Trial::test(name.clone(), move || {
            let case = case.map_err(|error| format!("{name}: {error}"))?;
            match check(&mut Core, &case) {
                Ok(None) => Ok(()),
                Ok(Some(mismatch)) => Err(Failed::from(mismatch.to_string())),
                Err(error) => Err(Failed::from(error.to_string())),
            }
        });
        match applies {
            Applies::Yes => trial,
            Applies::No(reason) => trial.with_kind(reason).with_ignored_flag(true),
        }
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
