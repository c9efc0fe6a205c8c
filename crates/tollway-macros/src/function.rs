//! Rewrites the function, so that it resolves its rule before its first line runs.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, Expr, Item, ItemFn, ReturnType, Signature, TraitItemFn, Type, parse_quote};

use crate::arguments::Arguments;

/// Returns the function with the code that resolves its rule inserted.
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

/// Returns the return type of the function, which must be able to hold the error of a denial.
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

/// Returns whether a type could be a `Result` or an alias of one. A macro cannot resolve names, so it refuses only
/// types that certainly are not; the compiler reports the rest.
fn may_be_result(returned: &Type) -> bool {
    let named = |name: String| name != "Option" && !name.starts_with(char::is_lowercase);
    match returned {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| named(last.ident.to_string())),
        // Types that come from a macro are wrapped in groups.
        Type::Group(group) => may_be_result(&group.elem),
        Type::Paren(group) => may_be_result(&group.elem),
        Type::Macro(_) => true,
        _ => false,
    }
}

/// Returns the code that resolves the rule, and returns the error of a denial from the function. Its variables are
/// hygienic: expressions of selectors cannot refer to them.
fn question(arguments: &Arguments, signature: &Signature, returned: &Type) -> TokenStream {
    let site = site(arguments, signature);
    let rate_limit = match &arguments.with {
        Some(with) => quote_spanned!(with.span() => &(#with)),
        None => quote!(::tollway::rate_limit::global()),
    };
    let values = arguments.selectors.iter().map(|(name, value)| value_of(&name.unraw().to_string(), value));
    let here = Span::mixed_site();
    // The `?` has the span of the return type, so that the compiler points there if the error cannot be converted.
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
    // The values are evaluated before anything is awaited, so that a guard or borrow in their expressions is not held
    // across the await.
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

/// Returns the initializer of the function's static `CallSite`.
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

/// Returns the code for the value of a selector. It borrows: an argument of the function is not moved.
fn value_of(name: &str, value: &Expr) -> TokenStream {
    let seen = quote_spanned!(value.span() => ::tollway::rate_limit::Selector::value(&(#value)));
    quote!((#name, #seen))
}
