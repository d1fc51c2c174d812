//! The guard finds what is planted in small crates that are made up.

use std::collections::BTreeMap;
use std::path::Path;

use crate::tree::{Arrows, Tree};
use crate::{circles, circles_of};

/// What the files of a crate use, given as pairs of path and text. The root is `lib.rs`.
fn arrows(files: &[(&str, &str)]) -> Arrows {
    let files: BTreeMap<_, _> = files.iter().map(|&(path, text)| (Path::new(path), text)).collect();
    Tree::of(Path::new("lib.rs"), &|path| files.get(path).map(|&text| text.to_owned())).unwrap().arrows()
}

/// Whether the file of one module uses that of another.
fn uses(arrows: &Arrows, from: &str, to: &str) -> bool {
    let names =
        |path: &str| path.split('/').filter(|it| !it.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    arrows[&names(from)].contains_key(&names(to))
}

/// A crate with modules `a` and `b` of these texts, where `b` defines `B` and has a module `c` that defines
/// `C`.
fn two(a: &str, b: &str) -> Arrows {
    let b = format!("pub mod c; pub struct B; {b}");
    arrows(&[("lib.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", &b), ("b/c.rs", "pub struct C;")])
}

#[test]
fn a_use_is_seen_wherever_it_is_written() {
    for text in [
        "use crate::b::B;",
        "use super::b::{self, B as Other};",
        "use crate::{b::{B}};",
        "pub use crate::b::*;",
        "fn f(b: crate::b::B) {}",
        "fn f() { let x = [super::b::B; 2]; }",
        "fn f() { assert!(matches!(x, Some(crate::b::B))); }",
        "mod inner { use super::super::b::B; }",
        "use crate::b; mod inner { use super::b::B; }",
        "impl crate::b::B { fn f(&self) {} }",
        "macro_rules! m { () => { $crate::b::B } }",
    ] {
        assert!(uses(&two(text, ""), "a", "b"), "{text}");
    }
}

#[test]
fn what_is_no_use_is_none() {
    for text in [
        "#[cfg(test)] use crate::b::B;",
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(all(test, unix))] #[allow(unused)] fn f() { crate::b::B; }",
        "struct S { #[cfg(test)] b: crate::b::B, c: u8 }",
        "/// As [`crate::b::B`].\nfn f() {}",
        "// crate::b::B\nconst TEXT: &str = \"crate::b::B\";",
        "pub(in crate::b) fn f() {}",
        "fn f() -> impl Iterator<Item = u8> + use<> { other::b::B }",
    ] {
        assert!(!uses(&two(text, ""), "a", "b"), "{text}");
    }
}

#[test]
fn code_behind_a_test_is_read() {
    assert!(uses(&two("#[cfg(test)] mod t {} use crate::b::B;", ""), "a", "b"));
    assert!(uses(&two("#[cfg(test)] use x::{y}; fn f() { crate::b::B; }", ""), "a", "b"));
}

#[test]
fn a_name_that_is_given_on_leads_to_its_home() {
    for b in ["pub use self::c::C;", "pub use c::{C as C};", "pub use self::c::*;"] {
        let arrows = two("use crate::b::C;", b);
        assert!(uses(&arrows, "a", "b/c") && !uses(&arrows, "a", "b") && uses(&arrows, "b", "b/c"), "{b}");
    }
}

#[test]
fn a_type_uses_the_files_of_its_methods() {
    let inherent = two("use crate::b::B; impl<T> B<T> where T: Fn(u8) -> u8 { fn f(&self) {} }", "");
    assert!(uses(&inherent, "b", "a"));
    let of_a_trait = two("use crate::b::B; impl<T> Clone for B<T> { fn clone(&self) {} }", "");
    assert!(!uses(&of_a_trait, "b", "a"));
}

#[test]
fn a_planted_circle_is_found_and_explained() {
    let mut files = vec![
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "pub struct B; fn f() { crate::c::g(); }"),
        ("c.rs", "pub fn g() {} pub struct C;"),
        ("d.rs", "use crate::a; use crate::e;"),
        ("e.rs", ""),
    ];
    assert_eq!(circles_of("crate", &arrows(&files)), []);
    files[3].1 = "pub fn g() { crate::a::h() } pub struct C;";
    let found = circles_of("crate", &arrows(&files));
    let [(place, modules, way)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((place.as_str(), *modules), ("crate", 3));
    assert!(
        way.contains("a.rs: `crate::b::B`, in b.rs") && way.contains("c.rs: `crate::a::h`, in a.rs"),
        "{way}"
    );
}

/// Folders are asked, not files alone: these two have no file that uses itself through others.
#[test]
fn folders_that_use_each_other_are_a_circle() {
    let arrows = arrows(&[
        ("lib.rs", "mod a; mod b; mod more;"),
        ("a/mod.rs", "mod x; mod y;"),
        ("a/x.rs", "use crate::b::x;"),
        ("a/y.rs", ""),
        ("b/mod.rs", "mod x; mod y;"),
        ("b/x.rs", ""),
        ("b/y.rs", "use crate::a::y;"),
        ("more.rs", ""),
    ]);
    assert!(circles::circles(&arrows).is_empty());
    let found = circles_of("crate", &arrows);
    assert!(matches!(&found[..], [(place, 2, _)] if place == "crate"), "{found:?}");
}

#[test]
fn a_file_that_is_declared_must_exist() {
    assert!(
        Tree::of(Path::new("lib.rs"), &|path| (path == Path::new("lib.rs")).then(|| "mod a;".into()))
            .is_err()
    );
}
