//! Every vector on the core.

use fordway_testkit::vector::{Applies, Core, Subject, check, load, vectors_dir, walk};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let found = match walk(&vectors_dir()) {
        Ok(found) => found,
        Err(error) => panic!("{}: {error}", vectors_dir().display()),
    };
    let trials = found.into_iter().map(|(name, path)| {
        let title = name.clone();
        Trial::test(title, move || {
            let case = load(&name, &path).map_err(|error| format!("{name}: {error}"))?;
            if let Applies::No(reason) = Core.applies(&case) {
                println!("{name} does not apply to the core: {reason}");
                return Ok(());
            }
            match check(&mut Core, &case) {
                Ok(None) => Ok(()),
                Ok(Some(mismatch)) => Err(Failed::from(mismatch.to_string())),
                Err(error) => Err(Failed::from(error.to_string())),
            }
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
