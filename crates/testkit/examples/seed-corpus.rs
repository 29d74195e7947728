//! Writes the fuzz targets' first corpora from the vectors into the folder given.
//!
//! `cargo run -p fordway-testkit --example seed-corpus -- fuzz/corpus`, then fuzz, then `cargo fuzz cmin`.

use std::path::PathBuf;
use std::{env, fs, io};

use fordway_softwire::Role;
use fordway_testkit::fuzz::{CONFIGS, control_for};
use fordway_testkit::vector::{Case, CaseStep, load, vectors_dir, walk};
use fordway_testkit::view::View;

/// Longer packets teach a fuzzer nothing.
const LONGEST: usize = 1400;

fn main() -> io::Result<()> {
    let Some(folder) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("give the folder of the corpora, such as fuzz/corpus");
        std::process::exit(2);
    };
    for target in ["core_v4", "core_v6", "icmp_error", "softwire", "structured"] {
        fs::create_dir_all(folder.join(target))?;
    }
    for (name, path) in walk(&vectors_dir())? {
        let case = load(&name, &path).map_err(io::Error::other)?;
        if case.softwire.is_some() {
            let file = name.replace('/', "-");
            fs::write(folder.join("softwire").join(file), softwire(&case))?;
            continue;
        }
        for (index, step) in case.steps.iter().enumerate() {
            if step.input.len() <= LONGEST {
                let file = format!("{}-{index}", name.replace('/', "-"));
                write(&folder, &file, &case, step)?;
            }
        }
    }
    for seed in 0..16u8 {
        let data: Vec<u8> =
            (0..200u8).map(|at| at.wrapping_mul(seed).rotate_left(3) ^ seed).collect();
        fs::write(folder.join("structured").join(format!("pattern-{seed}")), data)?;
    }
    Ok(())
}

fn write(folder: &std::path::Path, file: &str, case: &Case, step: &CaseStep) -> io::Result<()> {
    let config = config_like(case);
    let target = match step.input.first().map(|first| first >> 4) {
        Some(4) => "core_v4",
        Some(6) => "core_v6",
        _ => return Ok(()),
    };
    let control = control_for(config, &step.offload);
    fs::write(folder.join(target).join(file), [&control[..], &step.input].concat())?;
    if let Some(view) = View::of(&step.input).filter(View::is_icmp_error) {
        let data = [&[config, u8::from(!view.v4)], view.payload()].concat();
        fs::write(folder.join("icmp_error").join(file), data)?;
    }
    Ok(())
}

/// The packets of a case, at the fuzz setup that is most like its own: whole addresses or a shared one, end point or
/// client.
fn softwire(case: &Case) -> Vec<u8> {
    let is_client = case.softwire.as_ref().is_some_and(|it| it.settings().role == Role::Client);
    let mut data = vec![if is_client { 2 } else { 0 }];
    for step in &case.steps {
        let kind = if step.input.first().is_some_and(|first| first >> 4 == 4) { 0 } else { 3 };
        let len = u16::try_from(step.input.len()).unwrap_or(u16::MAX);
        data.push(kind);
        data.extend(control_for(0, &step.offload));
        data.extend(len.to_be_bytes());
        data.extend(&step.input[..usize::from(len)]);
    }
    data
}

/// The fuzz configuration with the same prefixes, else the first.
fn config_like(case: &Case) -> u8 {
    let same = |text: &str| {
        let spec: Option<fordway_testkit::vector::ConfigSpec> = toml::from_str(text).ok();
        spec.is_some_and(|spec| {
            spec.pool6 == case.vector.config.pool6 && spec.eam == case.vector.config.eam
        })
    };
    CONFIGS.iter().position(|text| same(text)).unwrap_or(0) as u8
}
