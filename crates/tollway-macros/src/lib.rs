//! `#[tollway::limit("user:10/5m", user = user_id)]`, for those who write `tollway`: it is documented there.
//!
//! ```text
//! arguments.rs    what stands in the parentheses, held to the rule it stands beside
//! function.rs     the function, with a question before its first line
//! ```
//!
//! The macro reads the rule, so what is wrong with it is said by the compiler, at the place. What runs is in
//! `tollway::rate_limit`: there is as little code here as a function must have for itself.

mod arguments;
mod function;

use proc_macro::TokenStream;

/// Runs a function only when its rule allows. See `tollway::limit`.
#[proc_macro_attribute]
pub fn limit(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = function::expand(arguments.into(), item.clone().into());
    expanded.map_or_else(|error| beside(&error, item), TokenStream::from)
}

/// The function as it was, too: a mistake in its limit is no reason to miss it everywhere else.
fn beside(error: &syn::Error, item: TokenStream) -> TokenStream {
    let mut told = TokenStream::from(error.to_compile_error());
    told.extend(item);
    told
}
