//! `/v1/rerank`: how well documents answer a query, as Jina, llama-server and TEI have it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::{App, Makes, Model, Shared};
use super::embeddings::MAX_INPUTS;
use super::error::ApiError;
use super::fields::Fields;
use super::json::with;

/// Fields of a request for scores.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    query: Option<String>,
    documents: Option<Vec<Document>>,
    /// Documents by TEI's name, whose form the answer has then.
    texts: Option<Vec<Document>>,
    /// Most documents of the answer, the best first.
    top_n: Option<usize>,
    return_documents: bool,
    /// Whether texts come back, by TEI's name.
    return_text: bool,
    #[serde(rename = "model")]
    _model: String,
}

/// A document: its text, or an object that has it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    Text(String),
    Object { text: String },
}

impl Document {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Object { text } => text,
        }
    }
}

/// A document's place in the request, its score, and its text if that is wanted.
struct Ranked {
    index: usize,
    score: f32,
    text: Option<String>,
}

pub(super) async fn route(State(app): Shared, mut fields: Fields) -> Result<Json<Value>, ApiError> {
    let asked: Asked = fields.take()?;
    let is_tei = asked.documents.is_none() && asked.texts.is_some();
    let (ranked, tokens) = rank(&app, asked).await?;
    if is_tei {
        let one = |it: &Ranked| {
            let value = json!({ "index": it.index, "score": it.score });
            it.text.iter().fold(value, |value, text| with(value, "text", text.as_str().into()))
        };
        return Ok(Json(ranked.iter().map(one).collect()));
    }
    let one = |it: &Ranked| {
        let value = json!({ "index": it.index, "relevance_score": it.score });
        it.text.iter().fold(value, |value, text| with(value, "document", json!({ "text": text })))
    };
    Ok(Json(json!({
        "model": app.model()?.card.alias,
        "object": "list",
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
        "results": ranked.iter().map(one).collect::<Vec<_>>(),
    })))
}

/// The documents with their scores, the best first, and the tokens of all pairs.
async fn rank(app: &Arc<App>, asked: Asked) -> Result<(Vec<Ranked>, usize), ApiError> {
    let missing = |name: &str| ApiError::field(name, "this field is missing");
    let query = asked.query.ok_or_else(|| missing("query"))?;
    let name = if asked.documents.is_some() { "documents" } else { "texts" };
    let documents = asked.documents.or(asked.texts).ok_or_else(|| missing("documents"))?;
    if documents.is_empty() {
        return Err(ApiError::field(name, "the list is empty"));
    }
    if documents.len() > MAX_INPUTS {
        let reason = format!("{} are too many; send at most {MAX_INPUTS} at a time", documents.len());
        return Err(ApiError::field(name, reason));
    }
    let work = Arc::clone(app);
    let pairs = app.work("the documents", move || {
        let model = work.model()?;
        let tokens = documents.iter().map(|document| pair(&query, document.text(), model));
        Ok((tokens.collect::<Result<Vec<_>, _>>()?, documents))
    });
    let (pairs, documents) = pairs.await?;
    let tokens = pairs.iter().map(Vec::len).sum();
    let scores = app.vectors.ask(pairs)?.await.map_err(|_| ApiError::ending())??;
    let keeps_text = asked.return_documents || asked.return_text;
    let mut ranked: Vec<Ranked> = scores
        .iter()
        .zip(&documents)
        .enumerate()
        .filter_map(|(index, (score, document))| {
            let text = keeps_text.then(|| document.text().to_owned());
            Some(Ranked { index, score: *score.first()?, text })
        })
        .collect();
    // Those with one score stay in the order of the request.
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
    ranked.truncate(asked.top_n.unwrap_or(usize::MAX));
    Ok((ranked, tokens))
}

/// The tokens of a query and a document.
fn pair(query: &str, document: &str, model: &Model) -> Result<Vec<u32>, ApiError> {
    let Makes::Scores(pairs) = &model.makes else {
        return Err(ApiError::switched_off("--reranking"));
    };
    model.admit(query)?;
    model.admit(document)?;
    let tokens = pairs.tokens(&model.card.text.tokenizer, query, document);
    let tokens = tokens.map_err(|error| ApiError::invalid(error.to_string()))?;
    if tokens.is_empty() {
        return Err(ApiError::field("query", "query and document have no tokens; give at least one"));
    }
    if tokens.len() > model.n_ctx {
        return Err(ApiError::too_long(tokens.len(), model.n_ctx));
    }
    Ok(tokens)
}
