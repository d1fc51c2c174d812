//! Settings of models and of texts, as keys of JSON. Their meaning is that of the library's options.

use std::path::PathBuf;

use hexflash::cancel::Cancel;
use hexflash::model::{CacheType, CacheTypes, MAX_VERIFY};
use hexflash::sampler::SamplerOverrides;
use hexflash::speculation::DraftLength;
use hexflash::weights::CachePolicy;
use hexflash::{Drafts, Limits, ModelOptions};

use crate::boundary::Outcome;
use crate::fields::Fields;

/// Drafter, by its name.
#[derive(Clone, Copy)]
enum Kind {
    None,
    Own,
    NGrams,
    Best,
}

/// Options of a model.
///
/// # Errors
/// A key is unknown, or its value is wrong.
pub(crate) fn model(options: Option<&str>) -> Outcome<ModelOptions> {
    let mut fields = Fields::parse("options", options)?;
    let mut model = ModelOptions::default();
    if let Some(device) = fields.take("device")? {
        model.device = device;
    }
    model.device_options.threads = fields.take("threads")?;
    model.device_options.sessions = fields.take("sessions")?;
    engine(&mut fields, &mut model)?;
    model.cache = cache(&mut fields)?;
    model.drafts = drafts(&mut fields)?;
    if let Some(n) = fields.take::<u32>("draft_max")? {
        if !(1..MAX_VERIFY).contains(&n) {
            return Err(fields.wrong("draft_max", &format!("give 1 to {} tokens", MAX_VERIFY - 1)));
        }
        model.draft_length = DraftLength::Fixed(n);
    }
    model.sampling = sampling(&mut fields)?;
    fields.end()?;
    Ok(model)
}

fn engine(fields: &mut Fields, model: &mut ModelOptions) -> Outcome {
    model.engine.n_ctx = fields.take("context")?;
    if let Some(batch) = fields.take("batch")? {
        model.engine.batch = batch;
    }
    if let Some(sequences) = fields.take("sequences")? {
        model.engine.sequences = sequences;
    }
    if let Some(mib) = fields.take::<u32>("snapshots_mib")? {
        model.engine.snapshot_bytes = u64::from(mib) << 20;
    }
    let types = CacheType::ALL.map(|kind| (kind.name(), kind));
    let CacheTypes { keys, values } = CacheTypes::default();
    model.engine.caches = CacheTypes {
        keys: fields.word("cache_type_k", &types)?.unwrap_or(keys),
        values: fields.word("cache_type_v", &types)?.unwrap_or(values),
    };
    Ok(())
}

/// Where repacked weights are kept.
fn cache(fields: &mut Fields) -> Outcome<CachePolicy> {
    let folder = fields.take::<PathBuf>("weights_cache_dir")?;
    let is_off = fields.take("no_weights_cache")?.unwrap_or(false);
    match (folder, is_off) {
        (Some(_), true) => {
            Err(fields.wrong("no_weights_cache", "there is a weights_cache_dir, too; give one of them"))
        }
        (Some(folder), false) => Ok(CachePolicy::Dir(folder)),
        (None, true) => Ok(CachePolicy::Off),
        (None, false) => Ok(CachePolicy::Beside),
    }
}

fn drafts(fields: &mut Fields) -> Outcome<Drafts> {
    let draft = fields.take::<PathBuf>("draft")?;
    let words = [("none", Kind::None), ("own", Kind::Own), ("ngrams", Kind::NGrams), ("best", Kind::Best)];
    match (draft, fields.word("drafts", &words)?) {
        (Some(draft), None) => Ok(Drafts::Model(draft)),
        (draft, Some(Kind::Best)) => Ok(Drafts::Best(draft)),
        (Some(_), Some(_)) => Err(fields.wrong("drafts", "with a draft model it can be best alone")),
        (None, None | Some(Kind::Own)) => Ok(Drafts::Own),
        (None, Some(Kind::None)) => Ok(Drafts::None),
        (None, Some(Kind::NGrams)) => Ok(Drafts::NGrams),
    }
}

fn sampling(fields: &mut Fields) -> Outcome<SamplerOverrides> {
    Ok(SamplerOverrides {
        temperature: fields.take("temperature")?,
        top_k: fields.take("top_k")?,
        top_p: fields.take("top_p")?,
        min_p: fields.take("min_p")?,
        repeat_penalty: fields.take("repeat_penalty")?,
        repeat_last_n: fields.take("repeat_last_n")?,
        presence_penalty: fields.take("presence_penalty")?,
        frequency_penalty: fields.take("frequency_penalty")?,
        seed: fields.take("seed")?,
    })
}

/// Request for a text.
pub(crate) struct TextRequest {
    pub(crate) limits: Limits,
    pub(crate) sampling: SamplerOverrides,
}

impl TextRequest {
    /// Request of a text that has no other keys than these.
    ///
    /// # Errors
    /// A key is unknown, or its value is wrong.
    pub(crate) fn parse(request: Option<&str>) -> Outcome<Self> {
        let mut fields = Fields::parse("request", request)?;
        let text = Self::take(&mut fields)?;
        fields.end()?;
        Ok(text)
    }

    /// Request among other keys.
    ///
    /// # Errors
    /// A value is wrong.
    pub(crate) fn take(fields: &mut Fields) -> Outcome<Self> {
        let limits = Limits {
            max_tokens: fields.take("max_tokens")?,
            stop: fields.take("stop")?.unwrap_or_default(),
            ignore_eos: fields.take("ignore_eos")?.unwrap_or(false),
            shown: Vec::new(),
            cancel: Cancel::default(),
        };
        if limits.stop.iter().any(String::is_empty) {
            return Err(fields.wrong("stop", "an empty text would end everything; leave it out"));
        }
        Ok(Self { limits, sampling: sampling(fields)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T>(outcome: Outcome<T>) -> String {
        match outcome {
            Ok(_) => panic!("it is accepted"),
            Err(failure) => format!("{failure:?}"),
        }
    }

    #[test]
    fn keys_have_their_meaning() {
        let options = r#"{"device": "qemu", "threads": 3, "context": 128, "sequences": 2, "snapshots_mib": 1,
            "cache_type_k": "q8_0", "weights_cache_dir": "w", "draft": "d.gguf", "drafts": "best",
            "draft_max": 4, "temperature": 0, "top_k": 7, "seed": 18446744073709551615}"#;
        let model = model(Some(options)).unwrap();
        assert_eq!((model.device.as_str(), model.device_options.threads), ("qemu", Some(3)));
        assert_eq!((model.engine.n_ctx, model.engine.sequences), (Some(128), 2));
        assert_eq!(model.engine.snapshot_bytes, 1 << 20);
        assert_eq!((model.engine.caches.keys.name(), model.engine.caches.values.name()), ("q8_0", "f16"));
        assert!(matches!(&model.cache, CachePolicy::Dir(folder) if folder.ends_with("w")));
        assert_eq!(model.drafts, Drafts::Best(Some("d.gguf".into())));
        assert!(matches!(model.draft_length, DraftLength::Fixed(4)));
        let sampling = model.sampling;
        assert_eq!(
            (sampling.temperature, sampling.top_k, sampling.seed),
            (Some(0.0), Some(7), Some(u64::MAX))
        );
        let request = TextRequest::parse(Some(r#"{"max_tokens": 5, "stop": ["\n"], "seed": null}"#)).unwrap();
        assert_eq!((request.limits.max_tokens, request.limits.stop), (Some(5), vec!["\n".to_owned()]));
        assert_eq!(request.sampling, SamplerOverrides::default());
    }

    #[test]
    fn without_keys_there_are_the_librarys_defaults() {
        for options in [None, Some(""), Some(" {} ")] {
            assert_eq!(format!("{:?}", model(options).unwrap()), format!("{:?}", ModelOptions::default()));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (options, part) in [
            (r#"{"contxt": 1}"#, r#"unknown key \"contxt\"; known are device, threads"#),
            (r#"{"context": -1}"#, r#"wrong value of \"context\": invalid value"#),
            (r#"{"threads": "2"}"#, "threads"),
            (r#"{"drafts": "mtp"}"#, r#"\"mtp\" is none of none, own, ngrams, best"#),
            (r#"{"drafts": "none", "draft": "d"}"#, "best alone"),
            (r#"{"draft_max": 0}"#, "give 1 to"),
            (r#"{"cache_type_v": "f8"}"#, "none of f16"),
            (r#"{"no_weights_cache": true, "weights_cache_dir": "w"}"#, "give one of them"),
            ("[]", "must be a JSON object"),
            ("{", "is no JSON"),
        ] {
            let text = refused(model(Some(options)));
            assert!(text.contains(part) && text.contains("options"), "{options}: {text}");
        }
        for (request, part) in [
            (r#"{"max_token": 1}"#, r#"unknown key \"max_token\""#),
            (r#"{"stop": "x"}"#, "stop"),
            (r#"{"stop": [""]}"#, "empty text"),
        ] {
            let text = refused(TextRequest::parse(Some(request)));
            assert!(text.contains(part) && text.contains("request"), "{request}: {text}");
        }
    }
}
