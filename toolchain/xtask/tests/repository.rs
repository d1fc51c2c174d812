//! What holds in every file of the repository: pages name files and headings that exist, pages are short, and
//! comments keep to the width of the code.
//!
//! The rule for paths in pages (every `.md` file):
//!
//! * A text in backticks, outside of blocks of code, is a path if it consists of letters, digits and the
//!   characters `_.-/`, and if it has a slash or the suffix of a file that is written by hand
//!   ([`SUFFIXES`]). What begins with `/` is a path of another machine, and what begins with `target/` is
//!   built; neither is looked for.
//! * A path is looked for below the repository, below the folder of its page, and below the folders of
//!   [`SOURCES`]. `host/`, `server/`, `dsp/` and `abi/` are other words for these.
//! * `NAME` in a path stands for what a reader adds. The folder before it must exist.
//!
//! So `model/arch/NAME.rs` is a file to be added to `host-runtime/src/model/arch`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use regex::Regex;

/// Widest line of a comment, which is also rustfmt's width.
const COLUMNS: usize = 110;

/// Suffixes by which a text without a slash is taken for a path.
const SUFFIXES: [&str; 9] = ["rs", "md", "toml", "json", "jsonl", "ld", "supp", "yml", "sh"];

/// Where abbreviated paths begin, and the word for it.
const SOURCES: [(&str, &str); 5] = [
    ("host", "host-runtime/src"),
    ("server", "host-runtime/server/src"),
    ("dsp", "dsp-runtime/src"),
    ("abi", "shared-abi/src"),
    ("cli", "host-runtime/cli/src"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The files with this suffix that git knows or would add, relative to the repository.
fn files(suffix: &str) -> Vec<PathBuf> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    let output = git.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let listed = String::from_utf8(output.stdout).unwrap();
    let all = listed.lines().map(PathBuf::from);
    let found: Vec<_> = all
        .filter(|path| path.extension().is_some_and(|it| it == suffix) && root().join(path).exists())
        .collect();
    assert!(found.len() > 5, "{found:?}");
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a page outside of blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((i + 1, line))
    })
}

/// The texts in backticks of a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_path(text: &str) -> bool {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-/".contains(c));
    let suffix = text.rsplit_once('.').map_or("", |(_, suffix)| suffix);
    let elsewhere = text.starts_with('/') || text.starts_with("target/");
    plain && !elsewhere && (text.contains('/') || SUFFIXES.contains(&suffix))
}

/// Whether a path of a page in `folder` leads to something.
fn exists(folder: &Path, path: &str) -> bool {
    let is_placeholder = |part: &str| part.split('.').any(|word| word == "NAME");
    let known: PathBuf = path.split('/').take_while(|part| !is_placeholder(part)).collect();
    let mut places = vec![folder.join(&known), known.clone()];
    for (word, source) in SOURCES {
        let inside = known.strip_prefix(word).unwrap_or(&known);
        places.push(Path::new(source).join(inside));
    }
    // A placeholder without a folder before it says nothing.
    !known.as_os_str().is_empty() && places.iter().any(|place| root().join(place).exists())
}

#[test]
fn every_path_in_a_page_exists() {
    let (mut checked, mut missing) = (0, Vec::new());
    for page in files("md") {
        let folder = page.parent().unwrap();
        for (line, text) in prose(&read(&page)) {
            for path in quoted(text).filter(|text| is_path(text)) {
                checked += 1;
                if !exists(folder, path) {
                    missing.push(format!("{}:{line}: `{path}`", page.display()));
                }
            }
        }
    }
    assert!(checked > 200, "{checked} paths");
    assert!(missing.is_empty(), "these paths do not exist:\n{}", missing.join("\n"));
}

/// The name that links give a heading: its words in small letters, joined by hyphens.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_relative_link_in_a_page_leads_somewhere() {
    let link = Regex::new(r"\]\(([^() ]+)\)").unwrap();
    let (mut checked, mut broken) = (0, Vec::new());
    for page in files("md") {
        let folder = page.parent().unwrap();
        for (line, text) in prose(&read(&page)) {
            for target in link.captures_iter(text).map(|found| found.get(1).unwrap().as_str()) {
                if target.contains("://") {
                    continue;
                }
                checked += 1;
                let (file, heading) = target.split_once('#').unwrap_or((target, ""));
                let file = if file.is_empty() { page.clone() } else { folder.join(file) };
                let exists = root().join(&file).exists();
                let is_there = |(_, line): (usize, &str)| line.starts_with('#') && anchor(line) == heading;
                if !exists || !heading.is_empty() && !prose(&read(&file)).any(is_there) {
                    broken.push(format!("{}:{line}: {target}", page.display()));
                }
            }
        }
    }
    assert!(checked > 200, "{checked} links");
    assert!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
}

/// Most bytes of a page that is read from its beginning to its end.
const PAGE_BYTES: usize = 12 * 1024;

/// Pages in which something is looked up, and which may be longer.
const REFERENCES: [&str; 3] = ["CHANGELOG.md", "docs/models.md", "toolchain/PACKETS.md"];

#[test]
fn pages_are_short() {
    let read_through = |page: &PathBuf| REFERENCES.iter().all(|it| page != Path::new(it));
    let long: Vec<_> = files("md")
        .into_iter()
        .filter(read_through)
        .map(|page| (read(&page).len(), page))
        .filter(|(bytes, _)| *bytes > PAGE_BYTES)
        .collect();
    assert!(
        long.is_empty(),
        "these pages are longer than {PAGE_BYTES} bytes, and should be several: {long:?}"
    );
    assert!(REFERENCES.iter().all(|page| root().join(page).exists()));
}

/// Tables (lines that begin and end with a bar) and lines with an address may be wider, because they cannot
/// be wrapped.
#[test]
fn comments_are_no_wider_than_the_code() {
    let (mut checked, mut wide) = (0, Vec::new());
    for file in files("rs") {
        for (i, line) in
            read(&file).lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"))
        {
            checked += 1;
            let text = line.trim().trim_start_matches(['/', '!']).trim();
            let cannot_wrap = text.starts_with('|') && text.ends_with('|') || text.contains("://");
            let columns = line.chars().count();
            if columns > COLUMNS && !cannot_wrap {
                wide.push(format!("{}:{}: {columns} columns", file.display(), i + 1));
            }
        }
    }
    assert!(checked > 5000, "{checked} lines");
    assert!(wide.is_empty(), "these comments are wider than {COLUMNS} columns:\n{}", wide.join("\n"));
}

/// Words that no comment of an item may begin with: it begins with the noun of the item, and makes sense
/// alone, as rustdoc shows it.
const NO_NOUNS: &str = r"^((What|Who|Whose|Its|Those|That of|The same|As there)[ .,:;]|As \[`)";

/// Folders with comments that begin so, and how many there are at most. The numbers may only fall.
const WITHOUT_NOUNS: &[(&str, usize)] = &[
    ("dsp-runtime/hvx-float/", 23),
    ("dsp-runtime/image/", 25),
    ("dsp-runtime/", 264),
    ("host-runtime/cli/", 138),
    ("host-runtime/ggml-backend/", 41),
    ("host-runtime/server/", 94),
    ("host-runtime/", 347),
    ("tests/", 149),
    ("toolchain/", 62),
];

/// The first lines of the comments of items in a text, without their slashes.
fn comments_of_items(text: &str) -> impl Iterator<Item = &str> {
    let mut before = "";
    text.lines().map(str::trim).filter_map(move |line| {
        let begins = !before.starts_with("///");
        before = line;
        line.strip_prefix("/// ").filter(|_| begins)
    })
}

#[test]
fn comments_of_items_begin_with_a_noun() {
    let without = Regex::new(NO_NOUNS).unwrap();
    let (mut checked, mut found) = (0, BTreeMap::<String, Vec<String>>::new());
    for file in files("rs") {
        let path = file.display().to_string();
        let folder = WITHOUT_NOUNS.iter().map(|it| it.0).find(|folder| path.starts_with(folder));
        for comment in comments_of_items(&read(&file)) {
            checked += 1;
            if without.is_match(comment) {
                found
                    .entry(folder.unwrap_or(&path).to_owned())
                    .or_default()
                    .push(format!("{path}: {comment}"));
            }
        }
    }
    assert!(checked > 5000, "{checked} comments");
    for (folder, comments) in found {
        let most = WITHOUT_NOUNS.iter().find(|it| it.0 == folder).map_or(0, |it| it.1);
        assert!(
            comments.len() <= most,
            "{folder}: {} comments begin without a noun, {most} are allowed:\n{}",
            comments.len(),
            comments.join("\n")
        );
    }
    let without = |text| comments_of_items(text).filter(|comment| without.is_match(comment)).count();
    assert_eq!(without("/// What a is.\nlet a;\n/// The a.\n/// What it is.\n/// Its a."), 1);
    assert_eq!(without("/// As [`b`], for a.\n\n/// The same a.\nfn f() {}\n/// Item.\n//! What"), 2);
}

#[test]
fn the_rules_tell_paths_from_other_texts() {
    for path in ["README.md", "model/arch/NAME.rs", "host/runtime", "docs/", "tests/e2e"] {
        assert!(is_path(path), "{path}");
    }
    for text in
        ["Op::Argmax", "n_past", "cargo xtask test", "/dev/fastrpc-cdsp", "target/dist/x", "--op RE", "v73"]
    {
        assert!(!is_path(text), "{text}");
    }
    assert_eq!(anchor("## Products, by `hmx` & HVX_2"), "products-by-hmx--hvx_2");
    let docs = Path::new("docs");
    for path in [
        "tape.md",
        "docs/tape.md",
        "model/arch/NAME.rs",
        "host/runtime/mod.rs",
        "kernels/NAME/mod.rs",
        "abi/op",
    ] {
        assert!(exists(docs, path), "{path}");
    }
    for path in ["model/arch/none.rs", "models/arch/NAME.rs", "NAME.rs", "dsp/engine", "ARCHITECTURE/x.md"] {
        assert!(!exists(docs, path), "{path}");
    }
}
