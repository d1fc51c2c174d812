//! The page at `/`: a chat for browsers, whose files are part of the program.
//!
//! It is plain HTML, CSS and JavaScript modules, served as they are in `host-runtime/server/page`. It asks
//! nobody but this server, and its Content-Security-Policy makes the browser see to that.

use axum::Router;
use axum::http::header::{self, HeaderName};
use axum::response::IntoResponse;
use axum::routing::get;

/// A file of the page.
struct Part {
    /// Where it is served.
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

/// A file of the folder `page`.
macro_rules! part {
    ($path:literal, $kind:literal, $file:literal) => {
        Part { path: $path, kind: $kind, text: include_str!(concat!("../../page/", $file)) }
    };
    ($script:literal) => {
        Part {
            path: concat!("/page/", $script),
            kind: "text/javascript; charset=utf-8",
            text: include_str!(concat!("../../page/", $script)),
        }
    };
}

const PARTS: [Part; 18] = [
    part!("/", "text/html; charset=utf-8", "index.html"),
    part!("/page/style.css", "text/css; charset=utf-8", "style.css"),
    part!("/page/icon.svg", "image/svg+xml", "icon.svg"),
    part!("app.js"),
    part!("answer.js"),
    part!("api.js"),
    part!("composer.js"),
    part!("conversation.js"),
    part!("dialogs.js"),
    part!("dom.js"),
    part!("figures.js"),
    part!("markdown.js"),
    part!("messages.js"),
    part!("models.js"),
    part!("pictures.js"),
    part!("store.js"),
    part!("vendor/marked.esm.js"),
    part!("vendor/purify.es.mjs"),
];

/// What the browser lets the page do: use the files of this server and ask its routes, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Routes to all parts of the page.
pub(super) fn routes() -> Router {
    PARTS.iter().fold(Router::new(), |router, part| router.route(part.path, get(async || file(part))))
}

/// Whether a part of the page is at `path`.
pub(super) fn is_part(path: &str) -> bool {
    PARTS.iter().any(|part| part.path == path)
}

fn file(part: &'static Part) -> impl IntoResponse {
    let headers: [(HeaderName, &str); 5] = [
        (header::CONTENT_TYPE, part.kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Files of one version do not go with those of another.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, part.text)
}
