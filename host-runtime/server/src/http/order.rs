//! What all routes that write text have in common: fields to orders.

use hexflash::cancel::Cancel;
use hexflash::generate::Limits;
use hexflash::sampler::{MAX_REPEAT_LAST_N, Sampler, SamplerOverrides, SamplerParams};
use hexflash::tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::Manner;
use super::app::{App, Model};
use super::error::ApiError;
use super::fields::Fields;
use super::form::FormFields;
use super::json::merged;
use super::unsupported::{ALWAYS, TEXTS, refuse};
use crate::grammar::Grammar;
use crate::scheduler::order::{Order, Telemetry};
use crate::text::form::Form;
use crate::text::kinds::whole;

/// Most stop texts, and their longest in bytes: each is looked for in every token's text.
const MAX_STOPS: usize = 128;
const MAX_STOP_BYTES: usize = 1024;
/// Most tokens with a bias, and the longest text in bytes that may stand for some of them.
const MAX_BIASES: usize = 1024;
const MAX_BIAS_BYTES: usize = 1024;
/// Most texts after each prompt, as with OpenAI.
const MAX_N: usize = 128;
/// Most texts of a request, however many may wait: each has a buffer and a sampler from the beginning.
const MAX_TEXTS: usize = 4096;
/// Words for what is no text, nor tokens.
pub(super) const NO_TEXT: &str = "give a text, a list of token ids, or a list of such";
/// Most alternatives of a token whose probabilities are told.
const MAX_ALTERNATIVES: usize = 100;

/// How the texts of a request are written.
pub(super) struct Settings {
    sampling: SamplerParams,
    pub(super) limits: Limits,
    reuse: bool,
    /// Texts after each prompt.
    pub(super) n: usize,
    pub(super) stream: bool,
    telemetry: Telemetry,
    /// Whether a stream ends with the number of tokens.
    pub(super) usage: bool,
    /// Alternatives of each token whose probabilities are wanted, if any are.
    pub(super) logprobs: Option<usize>,
    /// The form of the texts, if they are to have one.
    form: Option<Form>,
    /// Words for the client about what it asked for and does not get, besides what the form leaves out.
    warnings: Vec<String>,
    /// The sequence that is to run them, if it matters.
    slot: Option<usize>,
}

/// Fields that all requests for texts have.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct TextFields {
    /// Any name will do, as there is one model; but it is a name.
    #[serde(rename = "model")]
    _model: String,
    pub(super) stream: bool,
    stream_options: StreamOptions,
    return_progress: bool,
    timings_per_token: bool,
    n: Option<usize>,
    n_cmpl: Option<usize>,
    max_completion_tokens: Option<i64>,
    pub(super) max_tokens: Option<i64>,
    n_predict: Option<i64>,
    stop: Option<Stop>,
    /// Anthropic's name, and that of other servers.
    stop_sequences: Option<Stop>,
    ignore_eos: bool,
    temperature: Option<f32>,
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
    repeat_last_n: Option<i64>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    /// Negative ones stand for a new one each time.
    seed: Option<i128>,
    /// OpenAI's object of token ids, or llama-server's list of pairs.
    logit_bias: Option<Value>,
    cache_prompt: Option<bool>,
    /// The number of a sequence, or -1 for any.
    id_slot: Option<i64>,
}

/// Texts that end an answer.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(untagged, expecting = "give a text, or a list of texts")]
enum Stop {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Default, Deserialize, PartialEq)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

impl Settings {
    /// The settings of a request for what follows a text. These are its last fields: others that would change
    /// the answer are refused.
    pub(super) fn read(mut fields: Fields, app: &App, model: &Model) -> Result<Self, ApiError> {
        let (text, form) = (fields.take()?, fields.take()?);
        refuse(&fields, &ALWAYS)?;
        refuse(&fields, &TEXTS)?;
        Self::of(text, form, app, model)
    }

    pub(super) fn of(text: TextFields, form: FormFields, app: &App, model: &Model) -> Result<Self, ApiError> {
        let n = text.answers(app, model)?;
        Ok(Self {
            sampling: text.sampling(model)?,
            reuse: text.cache_prompt.unwrap_or(true),
            n,
            stream: text.stream,
            telemetry: Telemetry { progress: text.return_progress, times: text.timings_per_token },
            usage: text.stream_options.include_usage,
            logprobs: None,
            form: form.form(model)?,
            warnings: Vec::new(),
            slot: text.slot(model)?,
            limits: text.limits(app)?,
        })
    }

    /// What the settings are, by llama-server's names.
    pub(super) fn as_json(&self, model: &Model) -> Value {
        let sampling = &self.sampling;
        // JSON has no infinity.
        let finite = |bias: f32| Some(bias).filter(|bias| bias.is_finite());
        let bias = |&(token, bias): &(u32, f32)| json!({ "token": token, "bias": finite(bias) });
        let mut biases: Vec<Value> = sampling.logit_bias.iter().map(bias).collect();
        if self.limits.ignore_eos {
            let ends = model.card.text.tokenizer.eog().ids();
            biases.extend(ends.iter().map(|token| json!({ "token": token, "bias": null })));
        }
        let most = self.limits.max_tokens.map_or_else(|| json!(-1), |n| json!(n));
        let settings = json!({
            "n_ctx": model.n_ctx,
            "n_predict": most,
            "stream": self.stream,
            "stop": self.limits.stop,
            "ignore_eos": self.limits.ignore_eos,
            "logit_bias": biases,
            "n_probs": self.logprobs.unwrap_or(0),
        });
        merged(sampled(sampling), settings)
    }

    /// Whether the texts are to have a form.
    pub(super) fn has_form(&self) -> bool {
        self.form.is_some()
    }

    /// Has control tokens that are these texts be part of the answers.
    pub(super) fn show(&mut self, texts: &[&str], model: &Model) {
        let tokenizer = &model.card.text.tokenizer;
        self.limits.shown.extend(texts.iter().filter_map(|text| tokenizer.id_of(text)));
    }

    /// How the request is answered.
    pub(super) fn manner(&self) -> Manner {
        let keywords = self.form.as_ref().and_then(|form| form.ignored.as_ref());
        let keywords =
            keywords.map(|all| format!("the answer is not kept to these keywords of the schema: {all}"));
        Manner { stream: self.stream, warnings: keywords.into_iter().chain(self.warnings.clone()).collect() }
    }

    /// Tells the client something about what it does not get.
    pub(super) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Gives the texts the form of a call, or where none has to be made, that or their own.
    ///
    /// # Errors
    /// They have a form that gives way to no other.
    pub(super) fn call(&mut self, calls: Form, must_call: bool) -> Result<(), ApiError> {
        self.form = match self.form.take() {
            Some(own) if !must_call => Some(own.beside(calls)?),
            own => {
                // OpenAI's form is that of an answer in words, and none follows here.
                own.iter().try_for_each(Form::gives_way)?;
                Some(calls)
            }
        };
        Ok(())
    }

    /// Orders for the texts after these prompts: `n` for each, one prompt after the other.
    pub(super) fn orders(
        &self,
        prompts: Vec<Vec<u32>>,
        app: &App,
        model: &Model,
    ) -> Result<Vec<Order>, ApiError> {
        let wanted = prompts.len().saturating_mul(self.n);
        let most = room(app, model);
        if wanted > most {
            let reason = format!("{wanted} answers are more than this server has room for ({most})");
            return Err(ApiError::field("n", reason));
        }
        let form = self.form.as_ref().map(|form| model.compile(form)).transpose()?;
        let mut orders = Vec::with_capacity(wanted);
        for prompt in prompts {
            if prompt.is_empty() {
                return Err(ApiError::invalid("the prompt has no tokens; give at least one"));
            }
            if prompt.len() >= model.n_ctx {
                return Err(ApiError::too_long(prompt.len(), model.n_ctx));
            }
            for i in 0..self.n {
                let mut sampling = self.sampling.clone();
                // One seed gives one text: the others have seeds of their own that follow from it.
                sampling.seed = sampling.seed.map(|seed| seed.wrapping_add(i as u64));
                orders.push(Order {
                    prompt: prompt.clone(),
                    pictures: None,
                    // Each has an end of its own.
                    limits: Limits { cancel: Cancel::default(), ..self.limits.clone() },
                    sampler: Sampler::new(sampling).map_err(|error| ApiError::invalid(error.to_string()))?,
                    logprobs: self.logprobs,
                    form: form.as_ref().map(Grammar::another),
                    stream: self.stream,
                    telemetry: self.telemetry,
                    reuse: self.reuse,
                    slot: self.slot,
                });
            }
        }
        Ok(orders)
    }
}

/// How many alternatives of each token are told, as the field `name` asks for.
pub(super) fn alternatives(name: &str, n: usize) -> Result<usize, ApiError> {
    let wrong = || ApiError::field(name, format!("ask for at most {MAX_ALTERNATIVES}"));
    Some(n).filter(|&n| n <= MAX_ALTERNATIVES).ok_or_else(wrong)
}

/// Texts that the server can run or have wait at once: a request cannot ask for more.
fn room(app: &App, model: &Model) -> usize {
    model.slots.saturating_add(app.options.queue).min(MAX_TEXTS)
}

/// How texts are sampled, by llama-server's names.
pub(super) fn sampled(sampling: &SamplerParams) -> Value {
    json!({
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repeat_penalty,
        "repeat_last_n": sampling.repeat_last_n,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": sampling.seed,
    })
}

impl TextFields {
    /// Texts after each prompt. The number sizes what is made for them, which is why its bound comes first.
    fn answers(&self, app: &App, model: &Model) -> Result<usize, ApiError> {
        let most = room(app, model).min(MAX_N);
        let (name, n) = match (self.n, self.n_cmpl) {
            (None, Some(n)) => ("n_cmpl", n),
            (n, _) => ("n", n.unwrap_or(1)),
        };
        match n {
            0 => Err(ApiError::field(name, "ask for at least one answer")),
            n if n > most => Err(ApiError::field(name, format!("ask for at most {most} answers"))),
            n => Ok(n),
        }
    }

    fn slot(&self, model: &Model) -> Result<Option<usize>, ApiError> {
        let Some(n) = self.id_slot.filter(|&n| n != -1) else { return Ok(None) };
        let slot = usize::try_from(n).ok().filter(|&n| n < model.slots);
        let wrong = || ApiError::field("id_slot", format!("there are {}, from 0 on", model.slots));
        slot.map(Some).ok_or_else(wrong)
    }

    fn limits(self, app: &App) -> Result<Limits, ApiError> {
        let max_tokens = match self.max_completion_tokens.or(self.max_tokens).or(self.n_predict) {
            // As with llama-server: without a limit, and up to the end of the context, are the same here.
            None => app.options.max_tokens,
            Some(-1 | -2) => None,
            // None at all reads the prompt, which the next request with it need not do.
            Some(n) if n >= 0 => usize::try_from(n).ok(),
            Some(n) => {
                let reason = format!("{n} tokens cannot be asked for; give 0 or more, or -1 for no limit");
                return Err(ApiError::field("max_tokens", reason));
            }
        };
        let mut stop = Vec::new();
        for (name, texts) in [("stop", self.stop), ("stop_sequences", self.stop_sequences)] {
            match texts {
                None => {}
                Some(Stop::One(text)) => stop.push(text),
                Some(Stop::Many(texts)) => stop.extend(texts),
            }
            if stop.len() > MAX_STOPS || stop.iter().any(|stop| stop.len() > MAX_STOP_BYTES) {
                let reason = format!("give at most {MAX_STOPS} texts of at most {MAX_STOP_BYTES} bytes each");
                return Err(ApiError::field(name, reason));
            }
        }
        stop.retain(|stop| !stop.is_empty());
        Ok(Limits { max_tokens, stop, ignore_eos: self.ignore_eos, ..Limits::default() })
    }

    fn sampling(&self, model: &Model) -> Result<SamplerParams, ApiError> {
        let overrides = SamplerOverrides {
            temperature: self.temperature,
            top_k: self.top_k.map(|k| usize::try_from(k).unwrap_or(0)),
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: self.repeat_last_n.map(|n| usize::try_from(n).unwrap_or(MAX_REPEAT_LAST_N)),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed.and_then(|seed| u64::try_from(seed).ok()),
        };
        let mut params = model.card.text.sampling.clone().overridden_by(&overrides);
        if let Some(biases) = &self.logit_bias {
            params.logit_bias = logit_bias(biases, &model.card.text.tokenizer)?;
        }
        params.validate().map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok(params)
    }
}

/// Biases: OpenAI's object of token ids, or llama-server's list of pairs; both may name tokens by their text,
/// and `false` forbids one.
fn logit_bias(biases: &Value, tokenizer: &Tokenizer) -> Result<Vec<(u32, f32)>, ApiError> {
    let wrong = |reason: String| ApiError::field("logit_bias", reason);
    let too_many = || wrong(format!("give biases for at most {MAX_BIASES} tokens"));
    let pairs: Vec<(Value, Value)> = match biases {
        Value::Object(map) if map.len() > MAX_BIASES => return Err(too_many()),
        Value::Array(list) if list.len() > MAX_BIASES => return Err(too_many()),
        Value::Object(map) => map.iter().map(|(token, bias)| (token.as_str().into(), bias.clone())).collect(),
        list => Vec::deserialize(list).map_err(|error| wrong(error.to_string()))?,
    };
    let mut biases = Vec::with_capacity(pairs.len());
    for (token, bias) in pairs {
        let token = whole(token);
        let bias = match bias {
            Value::Bool(false) => f32::NEG_INFINITY,
            bias => bias.as_f64().ok_or_else(|| wrong(format!("{bias} is no bias")))? as f32,
        };
        // OpenAI's object has ids as its keys, which are text in JSON.
        let id = match &token {
            Value::String(text) => text.parse::<u64>().ok(),
            Value::Number(id) => Some(id.as_u64().ok_or_else(|| wrong(format!("{id} is no token id")))?),
            _ => return Err(wrong(format!("{token} is no token"))),
        };
        match (id, &token) {
            (Some(id), _) => {
                let known = u32::try_from(id).ok().filter(|&id| (id as usize) < tokenizer.vocab_size());
                let id = known.ok_or_else(|| wrong(format!("there is no token {id} in the vocabulary")))?;
                biases.push((id, bias));
            }
            (None, Value::String(text)) if text.len() > MAX_BIAS_BYTES => {
                return Err(wrong(format!("give texts of at most {MAX_BIAS_BYTES} bytes each")));
            }
            (None, Value::String(text)) => {
                biases.extend(tokenizer.encode(text, false, true)?.into_iter().map(|id| (id, bias)));
            }
            (None, _) => {}
        }
        if biases.len() > MAX_BIASES {
            return Err(too_many());
        }
    }
    Ok(biases)
}

/// The prompts of a completion: a text, tokens, both in turns, a text in llama-server's object, or a list of
/// such.
///
/// # Errors
/// One of them makes no sense, or there are more than the server has room for, which is found first: to split
/// a text into tokens takes time.
pub(super) fn prompts(prompt: &Value, app: &App, model: &Model) -> Result<Vec<Vec<u32>>, ApiError> {
    let most = room(app, model);
    let one = |prompt: &Value| one_prompt(prompt, model);
    match prompt {
        Value::Array(items) if items.iter().any(Value::is_number) => Ok(vec![one(prompt)?]),
        Value::Array(items) if items.is_empty() => Err(ApiError::field("prompt", "the list is empty")),
        Value::Array(items) if items.len() > most => {
            let reason = format!("{} prompts are more than this server has room for ({most})", items.len());
            Err(ApiError::field("prompt", reason))
        }
        Value::Array(items) => items.iter().map(one).collect(),
        prompt => Ok(vec![one(prompt)?]),
    }
}

/// The text of a prompt that could have media, too.
fn text_of(object: &Map<String, Value>) -> Result<&Value, ApiError> {
    let is_empty = |media: &Value| media.as_array().is_some_and(Vec::is_empty) || media.is_null();
    if object.get("multimodal_data").is_some_and(|media| !is_empty(media)) {
        return Err(ApiError::no_images("prompt"));
    }
    let text = object.get("prompt_string").filter(|text| text.is_string());
    text.ok_or_else(|| ApiError::field("prompt", "an object has no prompt_string"))
}

/// The id of a token in the list that is the field `name`.
///
/// # Errors
/// It is no whole number, or there is no such token.
pub(super) fn token_id(name: &str, id: &Value, tokenizer: &Tokenizer) -> Result<u32, ApiError> {
    let found = whole(id.clone()).as_u64().and_then(|id| u32::try_from(id).ok());
    let id = found.ok_or_else(|| ApiError::field(name, NO_TEXT))?;
    if id as usize >= tokenizer.vocab_size() {
        return Err(ApiError::field(name, format!("there is no token {id} in the vocabulary")));
    }
    Ok(id)
}

fn one_prompt(prompt: &Value, model: &Model) -> Result<Vec<u32>, ApiError> {
    let tokenizer = &model.card.text.tokenizer;
    let parts = match prompt {
        Value::Array(parts) => parts.as_slice(),
        Value::Object(object) => std::slice::from_ref(text_of(object)?),
        text => std::slice::from_ref(text),
    };
    let mut tokens = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        match part {
            Value::String(text) => {
                model.admit(text)?;
                tokens.extend(tokenizer.encode(text, i == 0, true)?);
            }
            id => tokens.push(token_id("prompt", id, tokenizer)?),
        }
        if tokens.len() >= model.n_ctx {
            let ids = parts.iter().filter(|part| part.is_number()).count();
            return Err(ApiError::too_long(tokens.len().max(ids), model.n_ctx));
        }
    }
    Ok(tokens)
}
