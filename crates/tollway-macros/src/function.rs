//! The function, with a question before its first line.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, Expr, Item, ItemFn, ReturnType, Signature, TraitItemFn, Type, parse_quote};

use crate::arguments::Arguments;

/// The function, limited as `arguments` say.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream, Error> {
    let arguments = syn::parse2(arguments)?;
    let mut function = read(item)?;
    let returns = returned(&function.sig)?;
    let question = question(&arguments, &function.sig, returns);
    function.block.stmts.insert(0, parse_quote!(#question));
    Ok(function.into_token_stream())
}

fn read(item: TokenStream) -> Result<ItemFn, Error> {
    let error = match syn::parse2::<ItemFn>(item.clone()) {
        Ok(function) => return Ok(function),
        Err(error) => error,
    };
    match (syn::parse2::<TraitItemFn>(item.clone()), syn::parse2::<Item>(item)) {
        (Ok(method), _) => Err(Error::new(method.sig.span(), "only a function with a body can be limited")),
        (_, Ok(item)) => Err(Error::new(item.span(), "only a function can be limited")),
        _ => Err(error),
    }
}

/// The type that says how a denial becomes an error.
fn returned(signature: &Signature) -> Result<&Type, Error> {
    if let Some(constness) = &signature.constness {
        return Err(Error::new(constness.span(), "a limit is asked at run time, and this function is const"));
    }
    match &signature.output {
        ReturnType::Type(_, returned) if may_be_result(returned) => Ok(returned),
        ReturnType::Type(_, returned) => Err(Error::new(returned.span(), NO_RESULT)),
        ReturnType::Default => Err(Error::new(signature.ident.span(), NO_RESULT)),
    }
}

const NO_RESULT: &str =
    "a limited function returns a `Result`, so that it can be denied: its error is `From<RateLimitExceeded>`";

/// Could a type be a `Result` by another name? The compiler knows; we know of some that cannot.
fn may_be_result(returned: &Type) -> bool {
    let named = |name: String| name != "Option" && !name.starts_with(char::is_lowercase);
    match returned {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| named(last.ident.to_string())),
        // Of a macro, or handed on by one.
        Type::Group(group) => may_be_result(&group.elem),
        Type::Paren(group) => may_be_result(&group.elem),
        Type::Macro(_) => true,
        _ => false,
    }
}

/// Asks, and leaves with the error of a denial. Its names are its own, and cannot be meant by a selector's expression.
fn question(arguments: &Arguments, signature: &Signature, returned: &Type) -> TokenStream {
    let site = site(arguments, signature);
    let rate_limit = match &arguments.with {
        Some(with) => quote_spanned!(with.span() => &(#with)),
        None => quote!(::tollway::rate_limit::global()),
    };
    let values = arguments.selectors.iter().map(|(name, value)| value_of(&name.unraw().to_string(), value));
    let here = Span::mixed_site();
    // Where the compiler points if the function's error cannot be made of ours.
    let leave = quote_spanned!(here.located_at(returned.span()) => ?);
    let (rule, bill, leave_early) = match arguments.key {
        None => (quote!(own_rule), quote!(own_bill), None),
        Some(_) => (quote!(shared_rule), quote!(shared_bill), Some(&leave)),
    };
    let (ask, answer) = match signature.asyncness {
        None => (quote!(ask), None),
        Some(_) => (quote!(ask_async), Some(quote!(.await))),
    };
    let exceeded =
        arguments.key.as_ref().map(|_| quote!(.map_err(::tollway::rate_limit::RateLimitError::from)));
    // The values are seen before anything is awaited, so that what they were seen through is not held meanwhile.
    quote_spanned! { here =>
        {
            static __TOLLWAY_SITE: ::tollway::rate_limit::CallSite = #site;
            let rate_limit: &::tollway::rate_limit::RateLimit = #rate_limit;
            let rule = __TOLLWAY_SITE.#rule(rate_limit) #leave_early;
            let bill = ::tollway::rate_limit::CallSite::#bill(&rule, &[#(#values),*]) #leave_early;
            ::tollway::rate_limit::CallSite::#ask(rate_limit, &rule, &bill) #answer #exceeded #leave;
        }
    }
}

/// What is remembered of the function.
fn site(arguments: &Arguments, signature: &Signature) -> TokenStream {
    let name = match &arguments.key {
        Some(key) => key.value(),
        None => signature.ident.unraw().to_string(),
    };
    let rule = match &arguments.rule {
        Some(rule) => quote!(::core::option::Option::Some(#rule)),
        None => quote!(::core::option::Option::None),
    };
    let on_full = arguments.on_full.as_ref().map(|answer| quote!(.with_on_full(#answer)));
    let on_store_failure =
        arguments.on_store_failure.as_ref().map(|answer| quote!(.with_on_store_failure(#answer)));
    quote!(::tollway::rate_limit::CallSite::new(#name, #rule) #on_full #on_store_failure)
}

/// A selector's value, where it stands: an argument is not moved.
fn value_of(name: &str, value: &Expr) -> TokenStream {
    let seen = quote_spanned!(value.span() => ::tollway::rate_limit::Selector::value(&(#value)));
    quote!((#name, #seen))
}
