//! Which file of a repository is meant: by its quantization or its name, with all parts of a split model.

use hexflash::gguf::ShardName;

use super::repo::DEFAULT_QUANT;

/// A model among the files of a repository: the names of its parts, the first one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) parts: Vec<String>,
}

/// Why there is no choice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoChoice {
    /// There is no GGUF file at all.
    NoGguf,
    /// No file has what was asked for; these could be had.
    NotThere { known: Vec<String> },
    /// Parts of a split model are missing.
    MissingParts { missing: Vec<String> },
}

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    /// [`DEFAULT_QUANT`]; where there is none, the first model in the order of names.
    Any,
    /// [`DEFAULT_QUANT`] and nothing else.
    Default,
    /// A quantization: part of the file's name.
    Quant(&'a str),
    /// A file by its name.
    File(&'a str),
}

/// The first part of the model that the file belongs to: itself, unless it is a later part.
pub(crate) fn first_part(name: &str) -> String {
    ShardName::parse(name).map_or_else(|| name.to_owned(), |part| ShardName { no: 0, ..part }.to_string())
}

/// Whether a file is a model: a GGUF that is neither a projector for images nor an importance matrix.
pub(crate) fn is_model(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.ends_with(".gguf") && !lower.contains("mmproj") && !lower.contains("imatrix")
}

/// The encoder of pictures among the names of all files: that in F16, which most are, or else the first.
pub(crate) fn encoder<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let is_encoder = |name: &&str| {
        let lower = name.to_ascii_lowercase();
        lower.ends_with(".gguf") && lower.contains("mmproj")
    };
    let mut all: Vec<&str> = names.filter(is_encoder).collect();
    all.sort_unstable();
    all.iter().find(|name| has_word(&name.to_ascii_lowercase(), "f16")).or(all.first()).copied()
}

/// Whether `quant` is a word of `name`: `F16` is none of `BF16`, nor `Q4_K` of `Q4_K_M`. Both in lower case.
fn has_word(name: &str, quant: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.match_indices(quant).any(|(at, _)| {
        let (before, after) = (&name[..at], &name[at + quant.len()..]);
        !before.ends_with(inside) && !after.starts_with(inside)
    })
}

/// Finds what is wanted among the names of all files.
pub(crate) fn choose<'a>(
    names: impl Iterator<Item = &'a str>,
    wanted: Wanted<'_>,
) -> Result<Choice, NoChoice> {
    let all: Vec<&str> = names.collect();
    let mut models: Vec<&str> = all.iter().copied().filter(|name| is_model(name)).collect();
    models.sort_unstable();
    let is_first = |name: &&str| ShardName::parse(name).is_none_or(|part| part.no == 0);
    let firsts: Vec<&str> = models.iter().copied().filter(is_first).collect();
    let by_quant = |quant: &str| {
        let quant = quant.to_ascii_lowercase();
        let lower = |name: &&&str| name.to_ascii_lowercase();
        let word = firsts.iter().find(|name| has_word(&lower(name), &quant));
        word.or_else(|| firsts.iter().find(|name| lower(name).contains(&quant))).copied()
    };
    let found = match wanted {
        Wanted::Any => by_quant(DEFAULT_QUANT).or(firsts.first().copied()),
        Wanted::Default => by_quant(DEFAULT_QUANT),
        Wanted::Quant(quant) => by_quant(quant),
        Wanted::File(file) => {
            let first = first_part(file);
            all.iter().copied().find(|&name| name == first)
        }
    };
    let Some(first) = found else {
        return Err(match models.is_empty() {
            true => NoChoice::NoGguf,
            false => NoChoice::NotThere { known: firsts.into_iter().map(str::to_owned).collect() },
        });
    };
    let parts = match ShardName::parse(first) {
        None => vec![first.to_owned()],
        Some(part) => {
            let parts: Vec<String> = (0..part.count).map(|no| ShardName { no, ..part }.to_string()).collect();
            let missing: Vec<String> =
                parts.iter().filter(|part| !all.contains(&part.as_str())).cloned().collect();
            if !missing.is_empty() {
                return Err(NoChoice::MissingParts { missing });
            }
            parts
        }
    };
    Ok(Choice { parts })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [&str; 11] = [
        "README.md",
        "mmproj-model-Q8_0.gguf",
        "model-BF16.gguf",
        "model-F16.gguf",
        "model-IQ4_XS.gguf",
        "model-Q4_K_M.gguf",
        "model-Q4_K_S.gguf",
        "model-Q8_0.gguf",
        "model-imatrix.gguf",
        "big/model-UD-Q6_K-00002-of-00002.gguf",
        "big/model-UD-Q6_K-00001-of-00002.gguf",
    ];

    fn first(wanted: Wanted<'_>) -> Result<String, NoChoice> {
        choose(FILES.into_iter(), wanted).map(|choice| choice.parts[0].clone())
    }

    #[test]
    fn quantizations_are_words_in_any_case() {
        let quant = |quant| first(Wanted::Quant(quant)).unwrap();
        assert_eq!(quant("q4_k_s"), "model-Q4_K_S.gguf");
        assert_eq!(quant("F16"), "model-F16.gguf");
        assert_eq!(quant("bf16"), "model-BF16.gguf");
        assert_eq!(quant("Q8_0"), "model-Q8_0.gguf");
        // No file has it as a word.
        assert_eq!(quant("Q4_K"), "model-Q4_K_M.gguf");
        assert_eq!(quant("XS"), "model-IQ4_XS.gguf");
    }

    #[test]
    fn without_a_quantization() {
        assert_eq!(first(Wanted::Any).unwrap(), "model-Q4_K_M.gguf");
        let few = ["b-Q8_0.gguf", "a-Q5_0.gguf", "0-mmproj.gguf"];
        assert_eq!(choose(few.into_iter(), Wanted::Any).unwrap().parts, ["a-Q5_0.gguf"]);
        assert!(matches!(choose(few.into_iter(), Wanted::Default), Err(NoChoice::NotThere { .. })));
    }

    #[test]
    fn encoders_are_those_in_f16_or_the_first() {
        let of = |names: &[&'static str]| encoder(names.iter().copied());
        assert_eq!(of(&FILES), Some("mmproj-model-Q8_0.gguf"));
        assert_eq!(
            of(&["mmproj-a-BF16.gguf", "b/mmproj-F16.gguf", "model-F16.gguf"]),
            Some("b/mmproj-F16.gguf")
        );
        assert_eq!(of(&["mmproj-b-Q8_0.gguf", "mmproj-a-BF16.gguf"]), Some("mmproj-a-BF16.gguf"));
        assert_eq!(of(&["model-F16.gguf", "mmproj.json"]), None);
    }

    #[test]
    fn all_parts_of_a_split_model() {
        let parts = ["big/model-UD-Q6_K-00001-of-00002.gguf", "big/model-UD-Q6_K-00002-of-00002.gguf"];
        let by = |wanted| choose(FILES.into_iter(), wanted).unwrap().parts;
        assert_eq!(by(Wanted::Quant("Q6_K")), parts);
        assert_eq!(by(Wanted::File(parts[1])), parts);
        let missing = choose([parts[0]].into_iter(), Wanted::Quant("Q6_K"));
        assert_eq!(missing, Err(NoChoice::MissingParts { missing: vec![parts[1].to_owned()] }));
    }

    #[test]
    fn what_is_not_there() {
        let Err(NoChoice::NotThere { known }) = first(Wanted::Quant("Q3_K")) else { panic!() };
        // Neither projectors nor matrices nor later parts.
        assert_eq!(known.len(), 7);
        assert!(matches!(first(Wanted::File("x.gguf")), Err(NoChoice::NotThere { .. })));
        let none = ["README.md", "model.safetensors", "mmproj-F16.gguf"];
        assert_eq!(choose(none.into_iter(), Wanted::Any), Err(NoChoice::NoGguf));
    }

    #[test]
    fn names_of_parts() {
        assert_eq!(first_part("m-00007-of-00012.gguf"), "m-00001-of-00012.gguf");
        for whole in
            ["m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-1-of-2.gguf", "m.gguf", "-of-.gguf"]
        {
            assert_eq!(first_part(whole), whole);
        }
    }
}
