//! What a selector's value can be.
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
//! A value is seen where it stands if it is text, and written into the value if it is not: neither allocates, unless it is
//! long. An empty one is no value at all.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

/// Something that has a value to tell one log from another by. Implement it for ids of your own, with [`SelectorValue::of`].
#[diagnostic::on_unimplemented(
    note = "texts, numbers, addresses and options of them are selectors' values; for other types implement `Selector`, \
            or give `value.to_string()`"
)]
pub trait Selector {
    /// The value; an empty one is none.
    fn value(&self) -> SelectorValue<'_>;
}

/// The value of a selector, for one request.
#[derive(Clone, Debug)]
pub struct SelectorValue<'a>(Content<'a>);

#[derive(Clone, Debug)]
enum Content<'a> {
    Borrowed(&'a [u8]),
    Short { bytes: [u8; SHORT_MAX], len: usize },
    Long(Vec<u8>),
}

/// As long as an IPv6 address ever is as text.
const SHORT_MAX: usize = 46;

impl<'a> SelectorValue<'a> {
    /// No value: the rates of its selector are not reached, and nothing is logged for it.
    pub const NONE: Self = Self(Content::Borrowed(b""));

    /// What is displayed.
    pub fn of(value: &(impl fmt::Display + ?Sized)) -> Self {
        let mut written = Self(Content::Short { bytes: [0; SHORT_MAX], len: 0 });
        // It fails only if `value` says so, and then has written what it could.
        let _ = write!(written, "{value}");
        written
    }

    /// The same, without what it was seen in.
    pub fn into_owned(self) -> SelectorValue<'static> {
        let mut owned = SelectorValue(Content::Short { bytes: [0; SHORT_MAX], len: 0 });
        match self.0 {
            Content::Borrowed(bytes) => owned.append(bytes),
            Content::Short { bytes, len } => owned.0 = Content::Short { bytes, len },
            Content::Long(bytes) => owned.0 = Content::Long(bytes),
        }
        owned
    }

    fn append(&mut self, more: &[u8]) {
        match &mut self.0 {
            Content::Long(bytes) => bytes.extend_from_slice(more),
            Content::Short { bytes, len } if *len + more.len() <= SHORT_MAX => {
                bytes[*len..*len + more.len()].copy_from_slice(more);
                *len += more.len();
            }
            _ => self.0 = Content::Long([(*self).as_ref(), more].concat()),
        }
    }
}

impl AsRef<[u8]> for SelectorValue<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Content::Borrowed(bytes) => bytes,
            Content::Short { bytes, len } => &bytes[..*len],
            Content::Long(bytes) => bytes,
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
        SelectorValue(Content::Borrowed(self.as_ref()))
    }
}

impl<T: Selector> Selector for Option<T> {
    fn value(&self) -> SelectorValue<'_> {
        self.as_ref().map_or(SelectorValue::NONE, T::value)
    }
}

macro_rules! as_they_stand {
    ($($kind:ty),*) => {$(
        impl Selector for $kind {
            #[inline]
            fn value(&self) -> SelectorValue<'_> {
                let bytes: &[u8] = self.as_ref();
                SelectorValue(Content::Borrowed(bytes))
            }
        }
    )*};
}

as_they_stand!(str, String, [u8], Vec<u8>);

macro_rules! as_what_they_hold {
    ($($kind:ty),*) => {$(
        impl<T: Selector + ?Sized> Selector for $kind {
            #[inline]
            fn value(&self) -> SelectorValue<'_> {
                T::value(self)
            }
        }
    )*};
}

as_what_they_hold!(&T, &mut T, Box<T>, Rc<T>, Arc<T>);

impl<T: Selector + ToOwned + ?Sized> Selector for Cow<'_, T> {
    fn value(&self) -> SelectorValue<'_> {
        T::value(self)
    }
}

macro_rules! as_they_display {
    ($($kind:ty),*) => {$(
        impl Selector for $kind {
            fn value(&self) -> SelectorValue<'_> {
                SelectorValue::of(self)
            }
        }
    )*};
}

as_they_display!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, bool, char);
as_they_display!(IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr);

/// A value, or a function that is called for one at each request. `By` is which of the two; the compiler finds it.
pub trait IntoSelector<'a, By> {
    /// What gives the value at each request.
    fn into_source(self) -> SelectorSource<'a>;
}

/// What a selector is: always one value, or what a function says.
pub struct SelectorSource<'a>(Kind<'a>);

type Call<'a> = dyn Fn() -> SelectorValue<'static> + Send + Sync + 'a;

enum Kind<'a> {
    SelectorValue(SelectorValue<'static>),
    Call(Box<Call<'a>>),
}

/// Given as a value.
#[derive(Debug)]
pub struct ByValue;

/// Given as a function.
#[derive(Debug)]
pub struct ByCall;

impl<'a, V: Selector> IntoSelector<'a, ByValue> for V {
    fn into_source(self) -> SelectorSource<'a> {
        SelectorSource(Kind::SelectorValue(self.value().into_owned()))
    }
}

impl<'a, V: Selector, F: Fn() -> V + Send + Sync + 'a> IntoSelector<'a, ByCall> for F {
    fn into_source(self) -> SelectorSource<'a> {
        SelectorSource(Kind::Call(Box::new(move || self().value().into_owned())))
    }
}

impl SelectorSource<'_> {
    pub(super) fn value(&self) -> SelectorValue<'_> {
        match &self.0 {
            Kind::SelectorValue(value) => value.value(),
            Kind::Call(call) => call(),
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
