//! Checks that any bytes are a token file or are refused without being repeated, and that patterns and trace headers
//! take any text.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use tollway_server::{LimitGlobs, Scopes, TokenFileError, check_tokens};
use tollway_wire::http::TraceParent;

fuzz_target!(|bytes: &[u8]| {
    match check_tokens(bytes, Path::new("tokens.txt")) {
        Ok(tokens) => assert!(tokens <= bytes.split(|byte| *byte == b'\n').count()),
        Err(TokenFileError::Lines { errors, .. }) => {
            for error in errors {
                assert!(error.line > 0 && error.column > 0);
                // The text of every error is fixed: it has nothing of the file in it.
                assert!(error.message.is_ascii() && error.message.len() < 200, "{}", error.message);
            }
        }
        Err(_) => {}
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(globs) = text.parse::<LimitGlobs>() {
        assert_eq!(globs.to_string().parse(), Ok(globs.clone()));
        let _ = globs.match_name(text);
    }
    if let Ok(scopes) = text.parse::<Scopes>() {
        assert_eq!(scopes.to_string().parse(), Ok(scopes));
    }
    if let Some(parent) = TraceParent::parse(bytes) {
        let flags = u8::from(parent.sampled);
        let written = format!("00-{:032x}-{:016x}-{flags:02x}", parent.trace_id, parent.span_id);
        assert_eq!(TraceParent::parse(written.as_bytes()), Some(parent));
    }
});
