//! Parses the arguments of `#[tollway::limit(…)]`, and checks its selectors against its rule.
//!
//! ```text
//! "RULE"                 first, and at most once; without it, the key must have been defined before
//! user = EXPRESSION      the value of a selector; `user` alone is `user = user`
//! key = "cats"           the key to count under, instead of the function's name
//! with = EXPRESSION      the rate limit to use, instead of the global one
//! on_full = …            and on_store_failure: values of the types with these names
//! ```

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Ident, LitStr, Token, parse_quote};
use tollway_core::Rule;

/// The names that are options and cannot be selectors.
const OPTIONS: [&str; 4] = ["key", "with", "on_full", "on_store_failure"];

const RULE_FIRST: &str = "the rule is a string such as \"user:10/5m\", and comes first";

/// The arguments that the attribute was given. If there is a rule, the selectors are exactly those of the rule.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) rule: Option<LitStr>,
    pub(crate) key: Option<LitStr>,
    pub(crate) with: Option<Expr>,
    pub(crate) on_full: Option<Expr>,
    pub(crate) on_store_failure: Option<Expr>,
    pub(crate) selectors: Vec<(Ident, Expr)>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self, Error> {
        let mut arguments = Self::default();
        if input.peek(LitStr) {
            arguments.rule = Some(input.parse()?);
            comma(input)?;
        }
        while !input.is_empty() {
            arguments.named(input)?;
            comma(input)?;
        }
        arguments.check()?;
        Ok(arguments)
    }
}

impl Arguments {
    fn named(&mut self, input: ParseStream<'_>) -> Result<(), Error> {
        if !input.peek(Ident::peek_any) {
            return Err(input.error(RULE_FIRST));
        }
        let name = input.call(Ident::parse_any)?;
        let given = input.parse::<Option<Token![=]>>()?.is_some();
        match &*name.unraw().to_string() {
            "key" if given => once(&mut self.key, &name, input.parse()?),
            "with" if given => once(&mut self.with, &name, input.parse()?),
            "on_full" if given => once(&mut self.on_full, &name, input.parse()?),
            "on_store_failure" if given => once(&mut self.on_store_failure, &name, input.parse()?),
            option if OPTIONS.contains(&option) => {
                Err(Error::new(name.span(), format!("say what it is: `{option} = …`")))
            }
            _ => self.selector(name.clone(), if given { input.parse()? } else { parse_quote!(#name) }),
        }
    }

    fn selector(&mut self, name: Ident, value: Expr) -> Result<(), Error> {
        if self.selectors.iter().any(|(known, _)| *known == name) {
            return Err(twice(&name));
        }
        self.selectors.push((name, value));
        Ok(())
    }

    /// Checks the selectors against the rule. Without a rule, they are checked when the function is called.
    fn check(&self) -> Result<(), Error> {
        let Some(rule) = &self.rule else {
            return match (&self.key, self.selectors.first()) {
                (Some(_), _) => Ok(()),
                (None, Some((name, _))) => Err(Error::new(name.span(), RULE_FIRST)),
                (None, None) => {
                    Err(Error::new(Span::call_site(), "a limit has a rule, such as \"10/s\", or a key"))
                }
            };
        };
        let parsed: Rule = rule.value().parse().map_err(|error| Error::new(rule.span(), error))?;
        let needed: Vec<_> = parsed.logs().iter().filter_map(|log| log.selector()).collect();
        let given: Vec<_> = self.selectors.iter().map(|(name, _)| (name, name.unraw().to_string())).collect();
        let missing = needed.iter().filter(|needed| !given.iter().any(|(_, given)| given == **needed));
        let missing = missing.map(|selector| Error::new(rule.span(), not_given(selector)));
        let unknown = given.iter().filter(|(_, given)| !needed.contains(&&**given));
        let unknown = unknown.map(|(name, _)| Error::new(name.span(), not_needed(name, &needed)));
        missing.chain(unknown).reduce(both).map_or(Ok(()), Err)
    }
}

/// Parses the comma between two arguments; after the last one it is optional.
fn comma(input: ParseStream<'_>) -> Result<(), Error> {
    if input.is_empty() { Ok(()) } else { input.parse::<Token![,]>().map(|_| ()) }
}

fn once<T>(place: &mut Option<T>, name: &Ident, value: T) -> Result<(), Error> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(twice(name)),
    }
}

fn twice(name: &Ident) -> Error {
    Error::new(name.span(), format!("`{name}` is given twice"))
}

fn not_given(selector: &str) -> String {
    match OPTIONS.contains(&selector) {
        true => {
            format!("`{selector}` is an option of the limit and cannot be a selector here: name it otherwise")
        }
        false => format!("the rule needs a value for `{selector}`: add `{selector} = …`"),
    }
}

fn not_needed(name: &Ident, needed: &[&str]) -> String {
    let has = if needed.is_empty() { "none".to_owned() } else { format!("`{}`", needed.join("`, `")) };
    let options = OPTIONS.join(", ");
    format!("`{name}` is neither a selector of the rule, which has {has}, nor an option: {options}")
}

fn both(mut one: Error, other: Error) -> Error {
    one.combine(other);
    one
}
