//! The header: what cbindgen makes of the sources, and names that the library has.

use std::path::Path;
use std::{env, fs};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::support::library;

/// Sources with something for C, in the order of the header.
const SOURCES: [&str; 7] = ["failure", "model", "generation", "conversation", "fits", "log", "boundary"];
/// Variable that has the header written anew.
const WRITE: &str = "HEXFLASH_WRITE_HEADER";

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The header of the sources.
fn made() -> String {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).unwrap();
    let sources = SOURCES.iter().map(|name| folder().join("src").join(name).with_extension("rs"));
    let builder = cbindgen::Builder::new().with_config(config);
    let bindings = sources.fold(builder, cbindgen::Builder::with_src).generate().unwrap();
    let mut header = Vec::new();
    bindings.write(&mut header);
    String::from_utf8(header).unwrap()
}

/// The names of functions in a text.
fn functions(text: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let before = code.flat_map(|line| line.match_indices('(').map(|(at, _)| &line[..at]));
    let names = before.map(|text| text.rsplit(|c| !is_name(c)).next().unwrap_or_default());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("hexflash_")).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn the_header_is_that_of_the_sources() {
    let (path, made) = (folder().join("include/hexflash.h"), made());
    if env::var_os(WRITE).is_some() {
        fs::write(&path, &made).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap();
    assert!(there == made, "run the test again with {WRITE}=1, and look at what `git diff` shows");
}

/// Also those of sources that the list above has forgotten.
#[test]
fn the_library_has_the_functions_of_the_header_and_no_others() {
    let header = fs::read_to_string(folder().join("include/hexflash.h")).unwrap();
    let declared = functions(&header);
    assert!(declared.len() > 15, "{declared:?}");
    let sources = fs::read_dir(folder().join("src")).unwrap();
    let sources = sources.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let all: Vec<_> =
        sources.flat_map(|source| source.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let exported = all.iter().filter(|line| line.contains(r#"extern "C" fn hexflash_"#));
    let exported = exported.cloned().collect::<Vec<_>>().join("\n");
    assert_eq!(functions(&exported), declared);

    // SAFETY: the library does nothing when it is loaded.
    let library = unsafe { Library::open(Some(library()), RTLD_NOW | RTLD_LOCAL) }.unwrap();
    for name in declared {
        // SAFETY: the function is looked for, and not called.
        let found = unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) };
        assert!(found.is_ok(), "{name}");
    }
}
