//! Every vector and every sequence on the core. `FORDWAY_VECTORS` takes another folder of them.

use std::path::PathBuf;

use fordway_testkit::live::{Inapplicable, arguments};
use fordway_testkit::vector::sequence::{CoreNat64, Stateful, check_sequence, load_sequence};
use fordway_testkit::vector::{
    Applies, Core, Subject, check, load, vectors_dir, walk, walk_sequences,
};
use libtest_mimic::{Failed, Trial};

fn main() {
    let folder = std::env::var_os("FORDWAY_VECTORS").map_or_else(vectors_dir, PathBuf::from);
    let mut trials = Vec::new();
    let mut inapplicable = Inapplicable::default();
    for (name, path) in walk(&folder).expect("the folder of vectors") {
        let case = load(&name, &path);
        if let Ok(Applies::No(reason)) = case.as_ref().map(|case| Core.applies(case)) {
            inapplicable.add(&reason);
            continue;
        }
        trials.push(Trial::test(name.clone(), move || {
            let case = case.map_err(|error| format!("{name}: {error}"))?;
            match check(&mut Core, &case) {
                Ok(None) => Ok(()),
                Ok(Some(mismatch)) => Err(Failed::from(mismatch.to_string())),
                Err(error) => Err(Failed::from(format!("{name}: {error}"))),
            }
        }));
    }
    for (name, path) in walk_sequences(&folder).expect("the folder of vectors") {
        let sequence = load_sequence(&name, &path);
        let skip = sequence.as_ref().ok().and_then(|it| it.skip.get(CoreNat64.name()));
        if let Some(reason) = skip {
            inapplicable.add(reason);
            continue;
        }
        trials.push(Trial::test(name.clone(), move || {
            let sequence = sequence.map_err(|error| format!("{name}: {error}"))?;
            match check_sequence(&mut CoreNat64, &sequence) {
                Ok(None) => Ok(()),
                Ok(Some(mismatch)) => Err(Failed::from(mismatch.to_string())),
                Err(error) => Err(Failed::from(format!("{name}: {error}"))),
            }
        }));
    }
    inapplicable.print("");
    libtest_mimic::run(&arguments(), trials).exit();
}
