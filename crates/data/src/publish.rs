//! A run's folder made fit for an archive: whole, without names of hosts and people, each file with its hash.

mod kept;
mod manifest;
mod scrub;

use std::io::Write;
use std::path::{Path, PathBuf};

use minijinja::Environment;
use walkdir::WalkDir;

use crate::artefacts::{COSTS, Run};
use crate::error::{DataError, Result};
use crate::files::write_file;
use crate::schema;

pub use kept::keep;
pub use manifest::{MANIFEST, check, write as write_manifest};
pub use scrub::Scrub;

/// The raw outputs in one file.
const RAW: &str = "raw.tar.gz";

const README: &str = include_str!("../templates/archive-readme.md");
const CITATION: &str = include_str!("../templates/CITATION.cff");

/// Files of a run that the others follow from; a run need not have the last one.
const SOURCES: [&str; 4] = ["spec.toml", "environment.json", "trials.jsonl", COSTS];

/// Copies what was measured into `out`, without names of hosts and people.
pub fn copy(dir: &Path, out: &Path, scrub: &mut Scrub) -> Result<()> {
    for name in SOURCES {
        let path = dir.join(name);
        match std::fs::read(&path) {
            Ok(bytes) => write_file(&out.join(name), &scrub.bytes(name, &bytes))?,
            Err(error) if name == COSTS && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(DataError::file(path)(error)),
        }
    }
    for (name, of) in [("results", schema::results()), ("trials", schema::trials())] {
        let text = serde_json::to_vec_pretty(&of)
            .map_err(|e| DataError::Artefact { path: out.to_owned(), why: e.to_string() })?;
        write_file(&out.join(format!("{name}.schema.json")), &text)?;
    }
    pack(&dir.join("raw"), &out.join(RAW), scrub)
}

/// Files below a folder with their paths in it, in order.
pub(super) fn files(dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut all = Vec::new();
    for entry in WalkDir::new(dir).sort_by_file_name() {
        let entry = entry.map_err(|e| DataError::Artefact {
            path: e.path().unwrap_or(dir).to_owned(),
            why: e.to_string(),
        })?;
        if entry.file_type().is_file() {
            let inside = entry.path().strip_prefix(dir).unwrap_or(entry.path());
            all.push((inside.to_string_lossy().into_owned(), entry.path().to_owned()));
        }
    }
    Ok(all)
}

/// The raw outputs as one archive; the same outputs give the same octets.
fn pack(raw: &Path, to: &Path, scrub: &mut Scrub) -> Result<()> {
    let mut archive = Vec::new();
    let failed = |error| DataError::file(to)(error);
    {
        let packed = flate2::write::GzEncoder::new(&mut archive, flate2::Compression::best());
        let mut tar = tar::Builder::new(packed);
        let found = if raw.is_dir() { files(raw)? } else { Vec::new() };
        for (name, path) in found {
            let bytes = std::fs::read(&path).map_err(DataError::file(&path))?;
            let inside = format!("raw/{name}");
            let bytes = scrub.bytes(&inside, &bytes);
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, &inside, bytes.as_slice()).map_err(failed)?;
        }
        let mut packed = tar.into_inner().map_err(failed)?;
        packed.flush().map_err(failed)?;
        packed.finish().map_err(failed)?;
    }
    write_file(to, &archive)
}

/// Writes README.md and CITATION.cff.
pub fn describe(run: &Run, out: &Path, authors: &[String], scrub: &Scrub) -> Result<()> {
    let mut jinja = Environment::new();
    let values = minijinja::Value::from(minijinja::value::Serde(serde_json::json!({
        "experiment": run.experiment,
        "run": run.experiment.run()?,
        "results": run.results,
        "trials": run.trials.len(),
        "headline": crate::report::words::headline(&run.experiment, &run.results),
        "authors": authors,
        "replaced": scrub.replaced(),
        "kept": scrub.kept(),
        "pdf": out.join("report.pdf").exists(),
        "costs": out.join(COSTS).exists(),
        "date": run.results.started.get(..10).unwrap_or_default(),
    })));
    for (name, template) in [("README.md", README), ("CITATION.cff", CITATION)] {
        let fail = |e: minijinja::Error| DataError::Draw { what: name.into(), why: e.to_string() };
        jinja.add_template(name, template).map_err(fail)?;
        let mut text = jinja.get_template(name).and_then(|t| t.render(&values)).map_err(fail)?;
        // A template's last line end is not part of what it makes.
        text.push('\n');
        write_file(&out.join(name), text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_outputs_make_the_same_archive() {
        let dir = tempfile::tempdir().unwrap();
        let raw = dir.path().join("raw");
        write_file(&raw.join("b/two.log"), b"on host examplehost\n").unwrap();
        write_file(&raw.join("one.json"), b"{}").unwrap();
        let made: Vec<Vec<u8>> = ["x.tar.gz", "y.tar.gz"]
            .iter()
            .map(|name| {
                let to = dir.path().join(name);
                pack(&raw, &to, &mut Scrub::of_names(&[("examplehost", "lab-host")])).unwrap();
                std::fs::read(to).unwrap()
            })
            .collect();
        assert_eq!(made[0], made[1]);
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(made[0].as_slice()));
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
            found.push((entry.path().unwrap().display().to_string(), text));
        }
        let want = [("raw/b/two.log", "on host lab-host\n"), ("raw/one.json", "{}")];
        assert_eq!(found, want.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }
}
