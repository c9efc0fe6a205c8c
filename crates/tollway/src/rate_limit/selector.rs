//! Converts values (texts, numbers, addresses) into the values of a rule's selectors.
//!
//! ```
//! use std::net::Ipv6Addr;
//! use tollway::rate_limit::Selector;
//!
//! assert_eq!("vova".value().as_ref(), b"vova");
//! assert_eq!(0.value().as_ref(), b"0");
//! assert_eq!(Some(Ipv6Addr::LOCALHOST).value().as_ref(), b"::1");
//! assert_eq!(None::<String>.value().as_ref(), b""); // No value.
//! ```
//!
//! A text is borrowed, and other values are written into an inline buffer: neither allocates unless the value is long.
//! An empty value counts as no value.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

/// A type that can be the value of a selector. Implement it for your own ids with [`SelectorValue::of`].
#[diagnostic::on_unimplemented(
    note = "texts, numbers, addresses and options of them are selectors' values; for other types implement `Selector`, \
            or give `value.to_string()`"
)]
pub trait Selector {
    /// Returns the value; an empty one counts as no value.
    fn value(&self) -> SelectorValue<'_>;
}

/// The value that a selector has in one request.
#[derive(Clone, Debug)]
pub struct SelectorValue<'a>(ValueBytes<'a>);

#[derive(Clone, Debug)]
enum ValueBytes<'a> {
    Borrowed(&'a [u8]),
    Short { bytes: [u8; SHORT_MAX], len: usize },
    Long(Vec<u8>),
}

/// The longest value that is stored inline, in bytes: an IPv6 address always fits.
const SHORT_MAX: usize = 46;

impl<'a> SelectorValue<'a> {
    /// No value: the rates of its selector do not apply, and nothing is counted for them.
    pub const NONE: Self = Self(ValueBytes::Borrowed(b""));

    /// Returns the value as it displays.
    pub fn of(value: &(impl fmt::Display + ?Sized)) -> Self {
        let mut written = Self(ValueBytes::Short { bytes: [0; SHORT_MAX], len: 0 });
        // Writing here cannot fail; only the `Display` of `value` itself can, and then its partial text is the value.
        let _ = write!(written, "{value}");
        written
    }

    /// Copies a borrowed value, so that it does not depend on a lifetime.
    pub fn into_owned(self) -> SelectorValue<'static> {
        let mut owned = SelectorValue(ValueBytes::Short { bytes: [0; SHORT_MAX], len: 0 });
        match self.0 {
            ValueBytes::Borrowed(bytes) => owned.append(bytes),
            ValueBytes::Short { bytes, len } => owned.0 = ValueBytes::Short { bytes, len },
            ValueBytes::Long(bytes) => owned.0 = ValueBytes::Long(bytes),
        }
        owned
    }

    fn append(&mut self, more: &[u8]) {
        match &mut self.0 {
            ValueBytes::Long(bytes) => bytes.extend_from_slice(more),
            ValueBytes::Short { bytes, len } if *len + more.len() <= SHORT_MAX => {
                bytes[*len..*len + more.len()].copy_from_slice(more);
                *len += more.len();
            }
            _ => self.0 = ValueBytes::Long([(*self).as_ref(), more].concat()),
        }
    }
}

impl AsRef<[u8]> for SelectorValue<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            ValueBytes::Borrowed(bytes) => bytes,
            ValueBytes::Short { bytes, len } => &bytes[..*len],
            ValueBytes::Long(bytes) => bytes,
        }
    }
}

impl Write for SelectorValue<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.append(text.as_bytes());
        Ok(())
    }
}

impl Selector for SelectorValue<'_> {
    fn value(&self) -> SelectorValue<'_> {
        SelectorValue(ValueBytes::Borrowed(self.as_ref()))
    }
}

impl<T: Selector> Selector for Option<T> {
    fn value(&self) -> SelectorValue<'_> {
        self.as_ref().map_or(SelectorValue::NONE, T::value)
    }
}

macro_rules! selector_from_bytes {
    ($($kind:ty),*) => {$(
        impl Selector for $kind {
            #[inline]
            fn value(&self) -> SelectorValue<'_> {
                let bytes: &[u8] = self.as_ref();
                SelectorValue(ValueBytes::Borrowed(bytes))
            }
        }
    )*};
}

selector_from_bytes!(str, String, [u8], Vec<u8>);

macro_rules! selector_from_pointer {
    ($($kind:ty),*) => {$(
        impl<T: Selector + ?Sized> Selector for $kind {
            #[inline]
            fn value(&self) -> SelectorValue<'_> {
                T::value(self)
            }
        }
    )*};
}

selector_from_pointer!(&T, &mut T, Box<T>, Rc<T>, Arc<T>);

impl<T: Selector + ToOwned + ?Sized> Selector for Cow<'_, T> {
    fn value(&self) -> SelectorValue<'_> {
        T::value(self)
    }
}

macro_rules! selector_from_display {
    ($($kind:ty),*) => {$(
        impl Selector for $kind {
            fn value(&self) -> SelectorValue<'_> {
                SelectorValue::of(self)
            }
        }
    )*};
}

selector_from_display!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, bool, char);
selector_from_display!(IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr);

/// A value, or a function that is called for a value at each request. `Origin` is [`FromValue`] or [`FromFunction`];
/// the compiler infers it. Without it, the implementations for values and functions would overlap.
pub trait IntoSelector<'a, Origin> {
    /// Converts it into a source, which gives the value at each request.
    fn into_source(self) -> SelectorSource<'a>;
}

/// A source that gives the value of a selector at each request.
pub struct SelectorSource<'a>(SourceKind<'a>);

type SelectorFunction<'a> = dyn Fn() -> SelectorValue<'static> + Send + Sync + 'a;

enum SourceKind<'a> {
    Value(SelectorValue<'static>),
    Function(Box<SelectorFunction<'a>>),
}

/// Marks a selector that was supplied as a value.
#[derive(Debug)]
pub struct FromValue;

/// Marks a selector that was supplied as a function.
#[derive(Debug)]
pub struct FromFunction;

impl<'a, V: Selector> IntoSelector<'a, FromValue> for V {
    fn into_source(self) -> SelectorSource<'a> {
        SelectorSource(SourceKind::Value(self.value().into_owned()))
    }
}

impl<'a, V: Selector, F: Fn() -> V + Send + Sync + 'a> IntoSelector<'a, FromFunction> for F {
    fn into_source(self) -> SelectorSource<'a> {
        SelectorSource(SourceKind::Function(Box::new(move || self().value().into_owned())))
    }
}

impl fmt::Debug for SelectorSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            SourceKind::Value(_) => "SelectorSource::Value",
            SourceKind::Function(_) => "SelectorSource::Function",
        })
    }
}

impl SelectorSource<'_> {
    pub(super) fn is_function(&self) -> bool {
        matches!(self.0, SourceKind::Function(_))
    }

    pub(super) fn value(&self) -> SelectorValue<'_> {
        match &self.0 {
            SourceKind::Value(value) => value.value(),
            SourceKind::Function(call) => call(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(selector: impl Selector) -> Vec<u8> {
        selector.value().as_ref().to_vec()
    }

    #[test]
    fn values_are_what_they_look_like() {
        assert_eq!(bytes("vova"), b"vova");
        assert_eq!(bytes(String::from("vova")), b"vova");
        assert_eq!(bytes(Some(&"vova")), b"vova");
        assert_eq!(bytes(Box::<str>::from("vova")), b"vova");
        assert_eq!(bytes(Arc::<str>::from("vova")), b"vova");
        assert_eq!(bytes(Cow::Borrowed("vova")), b"vova");
        assert_eq!(bytes(vec![0, 255]), [0, 255]);
        assert_eq!(bytes(0_u8), b"0");
        assert_eq!(bytes(i128::MIN), i128::MIN.to_string().as_bytes());
        assert_eq!(bytes(IpAddr::from([127, 0, 0, 1])), b"127.0.0.1");
        assert_eq!(bytes(None::<u64>), b"");
        assert_eq!(bytes(Some("")), b"");
    }

    #[test]
    fn long_values_are_whole() {
        for len in [1, SHORT_MAX - 1, SHORT_MAX, SHORT_MAX + 1, 1_000] {
            let text = "x".repeat(len);
            for value in
                [SelectorValue::of(&format_args!("{}{text}", "")), text.value(), text.value().into_owned()]
            {
                assert_eq!(value.as_ref(), text.as_bytes());
                assert_eq!(value.into_owned().as_ref(), text.as_bytes());
            }
        }
    }

    #[test]
    fn a_function_is_called_for_each_request() {
        let count = std::sync::atomic::AtomicU32::new(0);
        let called = (|| count.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).into_source();
        let said: Vec<_> = (0..2).map(|_| bytes(called.value())).collect();
        assert_eq!(said, [b"0", b"1"]);
        assert_eq!(bytes("always".into_source().value()), b"always");
    }
}
