//! Who may ask, and the files of the page. In: requests on a loopback port. Out: the page, and answers for who knows the token.
//!
//! A page of somebody else in the same browser, or another user of the machine, can reach the port. Neither knows the token;
//! a name that is made to mean this machine doesn't pass the check of `Host`, and nothing that a recording says is
//! executed: the policy allows scripts and styles from here alone, and none that are made of text.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::Host;
use crate::answers::Answers;
use crate::jobs::{Jobs, Told};
use crate::question::Question;

/// What takes longer is asked for again, with progress.
const PATIENCE: Duration = Duration::from_millis(150);
const AGAIN: Duration = Duration::from_millis(250);
/// No question is longer: a notebook.
const LARGEST: usize = 16 << 20;
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";
/// The files of the page: name, type, contents.
const FILES: &[(&str, &str, &str)] = &[
    (
        "index.html",
        "text/html; charset=utf-8",
        include_str!("../page/index.html"),
    ),
    (
        "style.css",
        "text/css; charset=utf-8",
        include_str!("../page/style.css"),
    ),
    ("analyses.js", SCRIPT, include_str!("../page/analyses.js")),
    ("api.js", SCRIPT, include_str!("../page/api.js")),
    ("code.js", SCRIPT, include_str!("../page/code.js")),
    ("dom.js", SCRIPT, include_str!("../page/dom.js")),
    ("lanes.js", SCRIPT, include_str!("../page/lanes.js")),
    ("lists.js", SCRIPT, include_str!("../page/lists.js")),
    ("main.js", SCRIPT, include_str!("../page/main.js")),
    ("notebook.js", SCRIPT, include_str!("../page/notebook.js")),
    ("order.js", SCRIPT, include_str!("../page/order.js")),
    ("source.js", SCRIPT, include_str!("../page/source.js")),
    ("state.js", SCRIPT, include_str!("../page/state.js")),
    ("values.js", SCRIPT, include_str!("../page/values.js")),
];

struct Server {
    answers: Answers,
    jobs: Jobs,
    token: String,
    port: u16,
}

type Shared = Arc<Server>;

pub fn serve(host: Box<dyn Host>, listener: TcpListener, token: String) -> Result<(), String> {
    let wrong = |error: std::io::Error| error.to_string();
    let port = listener.local_addr().map_err(wrong)?.port();
    listener.set_nonblocking(true).map_err(wrong)?;
    let server = Arc::new(Server {
        answers: Answers::new(host),
        jobs: Jobs::default(),
        token,
        port,
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(wrong)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(wrong)?;
        let router = router(server);
        axum::serve(listener, router).await.map_err(wrong)
    })
}

fn router(server: Shared) -> Router {
    let asking = Router::new()
        .route("/api/ask", post(ask))
        .route("/api/job/{number}", get(again).delete(cancel))
        .layer(DefaultBodyLimit::max(LARGEST))
        .route_layer(middleware::from_fn_with_state(server.clone(), knows));
    Router::new()
        .route("/", get(index))
        .route("/{name}", get(file))
        .merge(asking)
        .fallback(|| async { refused(StatusCode::NOT_FOUND, "there is nothing here") })
        .layer(middleware::from_fn_with_state(server.clone(), local))
        .with_state(server)
}

fn refused(status: StatusCode, why: &str) -> Response {
    (status, axum::Json(json!({"error": why}))).into_response()
}

/// Only this machine's own names reach it, and pages of its own; all answers say what a browser may do with them.
async fn local(State(server): State<Shared>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let names = [
        format!("127.0.0.1:{}", server.port),
        format!("localhost:{}", server.port),
    ];
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let host = text(header::HOST).is_some_and(|host| names.iter().any(|name| name == host));
    let origin = match headers.contains_key(header::ORIGIN) {
        false => true,
        true => text(header::ORIGIN)
            .and_then(|origin| origin.strip_prefix("http://"))
            .is_some_and(|origin| names.iter().any(|name| name == origin)),
    };
    let site = text(header::HeaderName::from_static("sec-fetch-site"));
    let is_page = request.uri().path() == "/";
    // A link on another site may lead to the page; nothing else is anybody's.
    let same = is_page || !matches!(site, Some("cross-site" | "same-site"));
    let mut response = match host && origin && same {
        true => next.run(request).await,
        false => refused(
            StatusCode::FORBIDDEN,
            "this server answers its own page only: open the address that clew view printed",
        ),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for name in ["cross-origin-opener-policy", "cross-origin-resource-policy"] {
        let value = HeaderValue::from_static("same-origin");
        headers.insert(header::HeaderName::from_static(name), value);
    }
    response
}

/// Whether two words are the same, in a time that doesn't tell where they differ.
fn same(a: &str, b: &str) -> bool {
    let pairs = a.bytes().zip(b.bytes());
    a.len() == b.len() && pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Only who knows the token asks.
async fn knows(State(server): State<Shared>, request: Request, next: Next) -> Response {
    let token = request.headers().get("x-clew-token");
    let token = token
        .and_then(|token| token.to_str().ok())
        .unwrap_or_default();
    match same(token, &server.token) {
        true => next.run(request).await,
        false => refused(
            StatusCode::UNAUTHORIZED,
            "the token is missing or wrong: open the address that clew view printed",
        ),
    }
}

async fn index() -> Response {
    file(Path("index.html".into())).await
}

async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, _, _)| *known == name) {
        Some((_, of, text)) => ([(header::CONTENT_TYPE, *of)], *text).into_response(),
        None => refused(StatusCode::NOT_FOUND, "there is nothing here"),
    }
}

async fn ask(State(server): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let of = headers.get(header::CONTENT_TYPE);
    if of.is_none_or(|of| !of.as_bytes().starts_with(b"application/json")) {
        return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a question is JSON");
    }
    let question: Question = match serde_json::from_slice(&body) {
        Ok(question) => question,
        Err(error) => {
            let why = format!("that is no question: {error}");
            return refused(StatusCode::BAD_REQUEST, &why);
        }
    };
    let asked = server.clone();
    let told = server
        .jobs
        .ask(PATIENCE, move |job| asked.answers.answer(job, question));
    respond(told.await)
}

async fn again(State(server): State<Shared>, Path(number): Path<u64>) -> Response {
    respond(server.jobs.again(number, AGAIN).await)
}

async fn cancel(State(server): State<Shared>, Path(number): Path<u64>) -> Response {
    axum::Json(json!({"cancelled": server.jobs.cancel(number)})).into_response()
}

fn respond(told: Told) -> Response {
    let value: Value = match told {
        Told::Answer(Ok(answer)) => json!({"answer": answer}),
        Told::Answer(Err(why)) => json!({"error": why}),
        Told::Later { number, progress } => json!({"job": number, "progress": progress}),
        Told::Unknown => {
            return refused(
                StatusCode::NOT_FOUND,
                "nobody asked that, or it was answered",
            );
        }
    };
    axum::Json(value).into_response()
}
