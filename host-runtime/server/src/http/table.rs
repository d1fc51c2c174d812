//! The table of routes. The router is made of it. It also says which routes need no key, in which dialect
//! errors are written, and which paths a client is told of that asks for what is not there.

use std::sync::Arc;

use axum::routing::{MethodFilter, MethodRouter, on};

use super::app::App;
use super::{
    chat, completions, embeddings, infill, info, messages, native, ollama, rerank, responses, slots, tokens,
};

/// All routes but those of the page for browsers, in the order of the page for users.
pub(super) static ROUTES: [Route; 29] = [
    Route::get("/health", |get| on(get, info::health)).also("/v1/health").open(),
    Route::get("/v1/models", |get| on(get, info::models)).also("/models").open().of(Dialect::OpenAi).shown(),
    Route::get("/v1/models/{*name}", |get| on(get, info::model)).also("/models/{*name}").of(Dialect::OpenAi),
    Route::post("/v1/chat/completions", |post| on(post, chat::route))
        .also("/chat/completions")
        .of(Dialect::OpenAi)
        .shown(),
    Route::post("/v1/chat/completions/input_tokens", |post| on(post, chat::count))
        .also("/chat/completions/input_tokens")
        .of(Dialect::OpenAi),
    Route::post("/v1/responses", |post| on(post, responses::create))
        .also("/responses")
        .of(Dialect::OpenAi)
        .shown(),
    Route::post("/v1/messages", |post| on(post, messages::create)).of(Dialect::Anthropic).shown(),
    Route::post("/v1/messages/count_tokens", |post| on(post, messages::count_tokens)).of(Dialect::Anthropic),
    Route::post("/v1/completions", |post| on(post, completions::route)).of(Dialect::OpenAi).shown(),
    Route::post("/v1/embeddings", |post| on(post, embeddings::create))
        .also("/embeddings")
        .of(Dialect::OpenAi)
        .shown(),
    Route::post("/v1/rerank", |post| on(post, rerank::route)).also("/rerank").of(Dialect::OpenAi),
    Route::post("/v1/reranking", |post| on(post, rerank::route)).also("/reranking").of(Dialect::OpenAi),
    Route::post("/completion", |post| on(post, native::route)).also("/completions"),
    Route::post("/infill", |post| on(post, infill::route)),
    Route::post("/api/chat", |post| on(post, ollama::chat)).of(Dialect::Ollama),
    Route::post("/api/generate", |post| on(post, ollama::generate)).of(Dialect::Ollama),
    Route::post("/api/embed", |post| on(post, ollama::embed)).of(Dialect::Ollama),
    Route::post("/api/embeddings", |post| on(post, ollama::embed_one)).of(Dialect::Ollama),
    Route::post("/api/show", |post| on(post, ollama::show)).of(Dialect::Ollama),
    Route::get("/api/tags", |get| on(get, ollama::tags)).of(Dialect::Ollama),
    Route::get("/api/ps", |get| on(get, ollama::ps)).of(Dialect::Ollama),
    Route::get("/api/version", |get| on(get, ollama::version)).open().of(Dialect::Ollama),
    Route::post("/tokenize", |post| on(post, tokens::tokenize)),
    Route::post("/detokenize", |post| on(post, tokens::detokenize)),
    Route::post("/apply-template", |post| on(post, tokens::apply_template)),
    Route::get("/props", |get| on(get, info::props)),
    Route::get("/slots", |get| on(get, info::slots)),
    Route::post("/slots/{id}", |post| on(post, slots::act)),
    Route::get("/metrics", |get| on(get, info::metrics)),
];

/// Most letters by which a path that was meant differs from that which was asked for.
const SLIP: usize = 2;

/// The interface that a route is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    OpenAi,
    Anthropic,
    Ollama,
    /// llama-server's own.
    Llama,
}

/// A method that routes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
}

impl Verb {
    /// Name of the method in HTTP.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }

    const fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
        }
    }
}

/// A route, as the table has it.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// Where it is. Its last part may be `{name}`, which stands for one part of a path, or `{*name}`, for all
    /// that are left.
    pub(crate) path: &'static str,
    /// Another path of it.
    pub(super) alias: Option<&'static str>,
    /// Whether everybody may ask it, without a key: whether the server is there and what it has, as with
    /// llama-server.
    pub(super) is_open: bool,
    pub(super) dialect: Dialect,
    /// Whether a client that asks for what is nowhere near any route is told of it.
    is_shown: bool,
    handler: fn(MethodFilter) -> MethodRouter<Arc<App>>,
}

impl Route {
    const fn new(
        verb: Verb,
        path: &'static str,
        handler: fn(MethodFilter) -> MethodRouter<Arc<App>>,
    ) -> Self {
        Self { verb, path, alias: None, is_open: false, dialect: Dialect::Llama, is_shown: false, handler }
    }

    const fn get(path: &'static str, handler: fn(MethodFilter) -> MethodRouter<Arc<App>>) -> Self {
        Self::new(Verb::Get, path, handler)
    }

    const fn post(path: &'static str, handler: fn(MethodFilter) -> MethodRouter<Arc<App>>) -> Self {
        Self::new(Verb::Post, path, handler)
    }

    const fn also(self, alias: &'static str) -> Self {
        Self { alias: Some(alias), ..self }
    }

    const fn open(self) -> Self {
        Self { is_open: true, ..self }
    }

    const fn of(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }

    const fn shown(self) -> Self {
        Self { is_shown: true, ..self }
    }

    /// The handler that answers it.
    pub(super) fn handler(&self) -> MethodRouter<Arc<App>> {
        (self.handler)(self.verb.filter())
    }

    /// Paths that lead to it.
    pub(super) fn paths(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.path).chain(self.alias)
    }
}

/// The route at a path of a request.
pub(crate) fn at(path: &str) -> Option<&'static Route> {
    ROUTES.iter().find(|route| route.paths().any(|pattern| fits(pattern, path)))
}

/// The dialect of what is, or could be, at a path: that of the route there, or of one that it is below.
pub(super) fn dialect_at(path: &str) -> Dialect {
    let is_below = |pattern: &str| path.strip_prefix(pattern).is_some_and(|rest| rest.starts_with('/'));
    let above = || ROUTES.iter().find(|route| route.paths().any(is_below));
    at(path).or_else(above).map_or(Dialect::OpenAi, |route| route.dialect)
}

/// The paths that a client is told of that asks for one which is not there: those near it, or the main ones.
pub(super) fn instead_of(path: &str) -> Vec<&'static str> {
    let near = |route: &&Route| route.paths().any(|there| is_near(there, path));
    let near: Vec<_> = ROUTES.iter().filter(near).map(|route| route.path).collect();
    let main = || ROUTES.iter().filter(|route| route.is_shown).map(|route| route.path).collect();
    if near.is_empty() { main() } else { near }
}

/// Whether two paths end alike, as with another base, or differ by a slip of the hand.
fn is_near(there: &str, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let is_slip = || there.len().abs_diff(path.len()) <= SLIP && strsim::levenshtein(there, path) <= SLIP;
    there.rsplit('/').next() == path.rsplit('/').next() || is_slip()
}

/// Whether a path of a request is one of those that `pattern` stands for.
fn fits(pattern: &str, path: &str) -> bool {
    match pattern.split_once('{') {
        None => pattern == path,
        Some((begin, name)) => path
            .strip_prefix(begin)
            .is_some_and(|rest| !rest.is_empty() && (name.starts_with('*') || !rest.contains('/'))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_its_route() {
        let path = |path: &str| at(path).map(|route| route.path);
        assert_eq!(path("/models/owner/name"), Some("/v1/models/{*name}"));
        assert_eq!((path("/v1/models"), path("/v1/models/")), (Some("/v1/models"), None));
        assert_eq!((path("/slots/3"), path("/slots/3/x")), (Some("/slots/{id}"), None));
        assert_eq!((path("/completions"), path("/completion/")), (Some("/completion"), None));
    }

    #[test]
    fn what_is_not_there_has_the_words_of_what_is_above_it() {
        for path in ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches"] {
            assert_eq!(dialect_at(path), Dialect::Anthropic, "{path}");
        }
        assert_eq!(dialect_at("/v1/messagesx"), Dialect::OpenAi);
    }

    #[test]
    fn lost_clients_are_told_of_what_is_near() {
        for (path, there) in [
            ("/v1/chat/completion", "/v1/chat/completions"),
            ("/v1/v1/messages", "/v1/messages"),
            ("/v1/models/", "/v1/models"),
            ("/generate", "/api/generate"),
            ("/api/tag", "/api/tags"),
        ] {
            assert!(instead_of(path).contains(&there), "{path}: {:?}", instead_of(path));
            assert!(instead_of(path).len() < 4, "{path}: {:?}", instead_of(path));
        }
        assert_eq!(instead_of("/v1/files"), instead_of("/"));
        assert!(instead_of("/v1/files").contains(&"/v1/chat/completions"));
    }

    /// The rows of the table on the page for users: method and path, other path, whether a key is needed.
    fn rows_of_the_page() -> Vec<[String; 3]> {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, section) = page.split_once("\n## Routes\n").unwrap();
        let rows = section.lines().skip_while(|line| !line.starts_with('|')).skip(2);
        let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
        rows.take_while(|line| line.starts_with('|'))
            .map(|line| {
                let mut cells = line.split('|').skip(1).map(cell);
                std::array::from_fn(|_| cells.next().unwrap())
            })
            .collect()
    }

    #[test]
    fn the_page_for_users_has_every_route() {
        let shown = |path: &str| path.replace("{*name}", "NAME").replace("{id}", "N");
        let row = |route: &Route| {
            let key = if route.is_open { "" } else { "yes" };
            let alias = route.alias.map(shown).unwrap_or_default();
            [format!("{} {}", route.verb.name(), shown(route.path)), alias, key.to_owned()]
        };
        // The page for browsers has routes of its own, and no key.
        let page = ["GET /", "", ""].map(str::to_owned);
        let expected: Vec<_> = std::iter::once(page).chain(ROUTES.iter().map(row)).collect();
        assert_eq!(rows_of_the_page(), expected, "the table of docs/server.md is not that of http/table.rs");
    }
}
