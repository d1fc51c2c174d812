//! Whose pages may ask: a browser shows pages of strangers, and lets them send requests to this machine.
//!
//! Three things are asked of a request. Its `Origin`, the page that sends it, is the server's own or one that
//! may ask. Its `Host` is a name of this server: a stranger can have a name of his own stand for 127.0.0.1,
//! and his page would then be of the same origin (DNS rebinding). And a body says that it is JSON, which a
//! browser sends to another server only after it has asked whether the page may.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::error::ApiError;
use crate::connections::Connection;
use crate::options::{CorsOrigins, Options};

/// Headers that tell browsers which pages of other servers may ask.
pub(super) fn cors(origins: &CorsOrigins) -> CorsLayer {
    let origin = match origins {
        CorsOrigins::Any => AllowOrigin::any(),
        CorsOrigins::Local => AllowOrigin::predicate(|origin, _| is_local(origin)),
        CorsOrigins::Only(list) => AllowOrigin::list(list.iter().cloned()),
    };
    // A wildcard would leave out the header of the key.
    let headers = AllowHeaders::mirror_request();
    CorsLayer::new().allow_origin(origin).allow_methods([Method::GET, Method::POST]).allow_headers(headers)
}

/// Lets requests through that come from pages that may ask, or from programs.
pub(super) async fn check(State(options): State<Arc<Options>>, request: Request, next: Next) -> Response {
    // Only who is on this machine reaches an address of it by any name.
    let is_here = request.extensions().get::<Connection>().is_none_or(|one| one.local().is_loopback());
    let allowed = allow(request.method(), request.uri(), request.headers(), &options, is_here);
    match allowed {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Checks that a request may come from where it comes; `is_here` if its client is on this machine.
fn allow(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    options: &Options,
    is_here: bool,
) -> Result<(), ApiError> {
    let called = called(uri, headers)?;
    if let Some(called) = called.as_ref().filter(|_| is_here)
        && !is_name(called, options)
    {
        let name = called.host();
        return Err(ApiError::foreign(format!(
            "{name} is no name of this server; start it with --host-names {name} if it is one"
        )));
    }
    let origin = headers.get(ORIGIN);
    if let Some(origin) = origin
        && !may_ask(origin, called.as_ref(), &options.cors)
    {
        return Err(ApiError::foreign(
            "the page that asks is none of those that may; name its server with --cors-origins",
        ));
    }
    if method != Method::POST {
        return Ok(());
    }
    match headers.get(CONTENT_TYPE) {
        Some(kind) if is_json(kind) => Ok(()),
        // Pages always say where they come from.
        None if origin.is_none() => Ok(()),
        _ => Err(ApiError::no_json()),
    }
}

/// By what name the server is called.
fn called(uri: &Uri, headers: &HeaderMap) -> Result<Option<Authority>, ApiError> {
    let wrong = || ApiError::invalid("the header Host is no name; send the name of the server once");
    let mut named = headers.get_all(HOST).iter();
    let header = named.next().map(|host| Authority::try_from(host.as_bytes()).map_err(|_| wrong()));
    if named.next().is_some() {
        return Err(wrong());
    }
    let header = header.transpose()?;
    // A whole address comes before the header.
    Ok(uri.authority().cloned().or(header))
}

/// Whether the server has this name, on this machine. A name of the Internet's has a dot in it, so that names
/// without one are no stranger's.
fn is_name(called: &Authority, options: &Options) -> bool {
    let host = called.host().trim_end_matches('.');
    let is = |name: &str| name.eq_ignore_ascii_case(host);
    let is_page = |origin: &HeaderValue| host_of(origin).is_some_and(|page| is(page.host()));
    let of_pages = match &options.cors {
        CorsOrigins::Only(list) => list.iter().any(is_page),
        CorsOrigins::Any | CorsOrigins::Local => false,
    };
    let is_local = || host.to_ascii_lowercase().ends_with(".localhost");
    !host.contains('.')
        || address(host).is_some()
        || is_local()
        || is(&options.host)
        || options.names.iter().any(|name| is(name))
        || of_pages
}

/// Whether a page may ask: one that may, or one of this server.
fn may_ask(origin: &HeaderValue, called: Option<&Authority>, pages: &CorsOrigins) -> bool {
    let listed = match pages {
        CorsOrigins::Any => true,
        CorsOrigins::Local => is_local(origin),
        CorsOrigins::Only(list) => list.contains(origin),
    };
    // Names and ports are compared without regard to case.
    listed || host_of(origin).is_some_and(|page| called == Some(&page))
}

/// Whether a page is one of this machine.
fn is_local(origin: &HeaderValue) -> bool {
    let Some(page) = host_of(origin) else { return false };
    page.host() == "localhost" || address(page.host()).is_some_and(|ip| ip.is_loopback())
}

/// The server of a page.
fn host_of(origin: &HeaderValue) -> Option<Authority> {
    origin.to_str().ok()?.parse::<Uri>().ok()?.authority().cloned()
}

/// An address, as it is written in a URL.
fn address(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

/// Whether a body of this type is JSON.
fn is_json(kind: &HeaderValue) -> bool {
    let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    let kind = kind.trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_machine_are_known_by_their_host_alone() {
        let is_local = |origin: &'static str| is_local(&HeaderValue::from_static(origin));
        for origin in
            ["http://localhost", "https://localhost:8080", "http://127.0.0.1:3000", "http://[::1]:1"]
        {
            assert!(is_local(origin), "{origin}");
        }
        for origin in ["http://notlocalhost", "http://localhost.example.org", "http://192.0.2.1", "null", ""]
        {
            assert!(!is_local(origin), "{origin}");
        }
    }

    /// The status of a refusal of a request to 127.0.0.1 with these headers.
    fn refusal(options: &Options, method: Method, headers: &[(&'static str, &str)]) -> Option<u64> {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let headers: HeaderMap = headers.collect();
        let error = allow(&method, &Uri::from_static("/completion"), &headers, options, true).err()?;
        error.json()["error"]["code"].as_u64()
    }

    #[test]
    fn a_name_of_a_stranger_is_no_name_of_this_server() {
        let options = Options {
            cors: "https://chat.example".parse().unwrap(),
            names: vec!["mine.example".to_owned()],
            ..Options::default()
        };
        for host in [
            "127.0.0.1:8080",
            "[::1]:8080",
            "localhost",
            "LOCALHOST:1",
            "a.localhost",
            "hexflash",
            "10.0.0.1",
            "mine.example:8080",
            "Chat.Example",
            "chat.example.",
        ] {
            assert_eq!(refusal(&options, Method::GET, &[("host", host)]), None, "{host}");
        }
        for host in ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"]
        {
            assert_eq!(refusal(&options, Method::GET, &[("host", host)]), Some(403), "{host}");
        }
        for host in ["", "a b", "a/b"] {
            assert_eq!(refusal(&options, Method::GET, &[("host", host)]), Some(400), "{host}");
        }
        assert_eq!(refusal(&options, Method::GET, &[]), None);
        assert_eq!(
            refusal(&options, Method::GET, &[("host", "localhost"), ("host", "evil.example")]),
            Some(400)
        );
        // From elsewhere, a server has the names that its users gave it.
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("box.lan"))]);
        let uri = Uri::from_static("/health");
        assert!(allow(&Method::GET, &uri, &headers, &options, false).is_ok());
        // The whole address counts where there is one.
        let uri = Uri::from_static("http://evil.example/health");
        assert!(allow(&Method::GET, &uri, &HeaderMap::new(), &options, true).is_err());
    }

    #[test]
    fn pages_that_may_not_ask_get_nothing() {
        let of = |cors: &str| Options { cors: cors.parse().unwrap(), ..Options::default() };
        let json = ("content-type", "application/json");
        let asks = |options: &Options, origin: &str| {
            let headers = [("host", "localhost:8080"), json, ("origin", origin)];
            refusal(options, Method::POST, &headers).is_none()
        };
        let some = of("https://a.example");
        assert!(asks(&some, "https://a.example") && asks(&some, "http://localhost:8080"));
        for origin in ["https://b.example", "null", "http://localhost:8081", "http://a.example", "x y"] {
            assert!(!asks(&some, origin), "{origin}");
        }
        let local = of("localhost");
        assert!(asks(&local, "http://127.0.0.1:3000") && !asks(&local, "https://a.example"));
        assert!(asks(&of("*"), "https://b.example"));
    }

    #[test]
    fn bodies_are_json_and_say_so() {
        let kind = |options: &Options, kind: &str, origin: &str| {
            let mut headers = vec![("host", "localhost")];
            headers
                .extend([("content-type", kind), ("origin", origin)].iter().filter(|(_, v)| !v.is_empty()));
            refusal(options, Method::POST, &headers)
        };
        let options = Options::default();
        for origin in ["", "https://a.example"] {
            for fine in ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"] {
                assert_eq!(kind(&options, fine, origin), None, "{fine} {origin}");
            }
            for wrong in
                ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/x+json"]
            {
                assert_eq!(kind(&options, wrong, origin), Some(415), "{wrong} {origin}");
            }
        }
        assert_eq!(kind(&options, "", ""), None);
        assert_eq!(kind(&options, "", "https://a.example"), Some(415));
        assert_eq!(refusal(&options, Method::GET, &[("content-type", "text/plain")]), None);
    }
}
