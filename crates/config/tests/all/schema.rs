//! The JSON Schema takes what the reader takes, as far as it can tell.

use std::path::{Path, PathBuf};

use boon::{Compiler, SchemaIndex, Schemas};
use fordway_config::{parse, schema};
use serde_json::Value;

/// The schema, ready to be held against files.
struct Checker {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Checker {
    fn new() -> Checker {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource("fordway.json", schema()).unwrap();
        let index = compiler.compile("fordway.json", &mut schemas).unwrap();
        Checker { schemas, index }
    }

    fn check(&self, text: &str) -> Result<(), String> {
        let file: Value = toml::from_str(text).map_err(|error| error.to_string())?;
        self.schemas.validate(&file, self.index).map_err(|error| format!("{error:#}"))
    }
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|it| it == "toml")).collect()
}

#[test]
fn right_files_are_right_as_people_write_them_and_as_they_are_written_out() {
    let checker = Checker::new();
    let folders = ["tests/valid", "tests/warnings", "../../packaging/examples", "../../examples"];
    let all: Vec<PathBuf> = folders.into_iter().flat_map(files).collect();
    assert!(all.len() > 20);
    for path in all {
        let text = std::fs::read_to_string(&path).unwrap();
        checker.check(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let written = parse("file", &text).unwrap().config.to_string();
        checker.check(&written).unwrap_or_else(|error| panic!("{path:?}, written out: {error}"));
    }
}

#[test]
fn wrong_files_are_wrong() {
    let checker = Checker::new();
    for text in [
        "colour = 1",
        "[dns64]\nlisten = ['::1']",
        "[dns64]\nlisten = ['::1']\nupstream = []",
        "[dns64]\nlisten = ['::1']\nupstream = ['192.0.2.53']\nattempts = 9",
        "[log]\nlevel = 'loud'",
        "[[translator]]\nname = 'a'\npool6 = ['64:ff9b::/96']",
        "[[translator]]\nname = 'a'\nmode = 'clat'",
        "[[translator]]\nname = 'a'\nmode = 'clat'\npref64 = '64:ff9b::/96'\nbib = []",
        "[[translator]]\nname = 'a'\nmode = 'nat64'\npool6 = ['64:ff9b::/96']\nport_blocks = { most = 1 }",
        "[[proxy]]\nname = 'a'\nmode = 'reverse'\nlisten = ['::1']",
        "[metrics]\nlisten = '[::1]:9464'",
    ] {
        assert!(checker.check(text).is_err(), "{text}");
        assert!(parse("file", text).is_err(), "{text}");
    }
}
