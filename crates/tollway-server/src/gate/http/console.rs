//! The console: one page with its style, its script and its icon, all of them parts of the program.
//!
//! The page shows what `/v1/live` sends. It loads nothing from elsewhere, and its [policy](CONTENT_POLICY) lets a
//! browser load nothing from elsewhere either: ids are chosen by clients, and none of them may become code.

use super::route::Document;

/// The sources that a browser may use for the page: the admin gate, and nothing else. No page may show it in a frame.
pub(super) const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                                         connect-src 'self'; base-uri 'none'; form-action 'self'; \
                                         frame-ancestors 'none'";

pub(super) static PAGE: Document =
    Document { content_type: "text/html; charset=utf-8", text: include_str!("console/index.html") };
pub(super) static STYLE: Document =
    Document { content_type: "text/css; charset=utf-8", text: include_str!("console/console.css") };
pub(super) static SCRIPT: Document =
    Document { content_type: "text/javascript; charset=utf-8", text: include_str!("console/console.js") };
pub(super) static ICON: Document =
    Document { content_type: "image/svg+xml", text: include_str!("console/icon.svg") };
