//! Implements the attribute `#[tollway::limit("user:10/5m", user = user_id)]`. Use it through the crate `tollway`,
//! which documents it.
//!
//! ```text
//! arguments.rs    parses the arguments, and checks the selectors against the rule
//! function.rs     rewrites the function, so that it resolves its rule before its first line runs
//! ```
//!
//! The macro parses the rule, so the compiler reports mistakes in it at their place. The code that runs is in
//! `tollway::rate_limit`; the macro generates as little as possible, because it is repeated in every limited function.

mod arguments;
mod function;

use proc_macro::TokenStream;

/// Runs a function only if its rule allows it. See `tollway::limit`.
#[proc_macro_attribute]
pub fn limit(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = function::expand(arguments.into(), item.clone().into());
    expanded.map_or_else(|error| beside(&error, item), TokenStream::from)
}

/// Returns the error together with the unchanged function. Without the function, every caller would get an error, too.
fn beside(error: &syn::Error, item: TokenStream) -> TokenStream {
    let mut told = TokenStream::from(error.to_compile_error());
    told.extend(item);
    told
}
