//! The HTTP statuses that the server sends.

macro_rules! statuses {
    ($($name:ident $code:literal $text:literal,)*) => {
        /// An HTTP status that the server sends.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // Their names are the documentation.
        pub enum HttpStatus { $($name,)* }

        impl HttpStatus {
            /// Returns the number of the status.
            pub const fn code(self) -> u16 {
                match self { $(Self::$name => $code,)* }
            }

            /// Returns the reason phrase of the status.
            pub const fn reason(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns the status line, and the headers that every response has.
            pub(super) const fn head_start(self) -> &'static [u8] {
                match self {
                    $(Self::$name => concat!(
                        "HTTP/1.1 ", $code, " ", $text, "\r\n",
                        // No browser guesses another type for an answer, and no cache keeps a decision.
                        "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n",
                    ).as_bytes(),)*
                }
            }
        }
    };
}

statuses! {
    Ok 200 "OK",
    BadRequest 400 "Bad Request",
    Unauthorized 401 "Unauthorized",
    Forbidden 403 "Forbidden",
    NotFound 404 "Not Found",
    MethodNotAllowed 405 "Method Not Allowed",
    RequestTimeout 408 "Request Timeout",
    BodyTooLarge 413 "Content Too Large",
    UnsupportedMediaType 415 "Unsupported Media Type",
    Misdirected 421 "Misdirected Request",
    Unprocessable 422 "Unprocessable Content",
    TooManyRequests 429 "Too Many Requests",
    HeadersTooLarge 431 "Request Header Fields Too Large",
    NotImplemented 501 "Not Implemented",
    ServiceUnavailable 503 "Service Unavailable",
    VersionNotSupported 505 "HTTP Version Not Supported",
}
