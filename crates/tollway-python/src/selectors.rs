//! Finds the values of a rule's selectors.
//!
//! ```text
//! @rl.limit(And('username:10/5m', 'apikey:100/m'), username=get_username, selector=api)
//! def do_stuff(self): ...
//!
//! username    the keyword argument, which is called
//! apikey      api.apikey or api['apikey'], or else self.apikey, called if they are methods
//! ```
//!
//! The sources are known when a function is decorated. They are looked up for each call, and callables are called when
//! the rule needs their values.

use pyo3::exceptions::{PyAttributeError, PyLookupError, PyTypeError};
use pyo3::import_exception;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyString, PyTuple};
use tollway::core::Rule;

import_exception!(tollway._errors, SelectorError);

/// The selectors of one rule, and the sources that their values come from.
pub(crate) struct Selectors {
    each: Vec<Selector>,
}

struct Selector {
    name: Py<PyString>,
    sources: Vec<Source>,
}

/// A source that may have a value for a selector.
enum Source {
    /// A value that was given for the selector.
    Value(Py<PyAny>),
    /// An object that has the value as a member or as an item.
    Of(Py<PyAny>),
    /// The first argument of the call, which may be passed by this name and has the value as a member.
    OfFirst(Option<Py<PyString>>),
}

/// The arguments that one call was given.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a, 'py> {
    /// The arguments that were passed by position.
    pub(crate) args: Option<&'a Bound<'py, PyTuple>>,
    /// The arguments that were passed by name.
    pub(crate) kwargs: Option<&'a Bound<'py, PyDict>>,
    /// Values for selectors that come before all others.
    pub(crate) given: Option<&'a Bound<'py, PyDict>>,
}

/// Keyword arguments and a `selector` object, as they were given together.
pub(crate) type Layer<'py> = (Bound<'py, PyDict>, Option<Bound<'py, PyAny>>);

impl Selectors {
    /// Returns the selectors of a rule. Values are looked up in the layers, in order; then in the first argument, if
    /// there is one.
    pub(crate) fn new(
        py: Python<'_>,
        rule: &Rule,
        layers: &[Layer<'_>],
        first: Option<Option<&Bound<'_, PyString>>>,
    ) -> PyResult<Self> {
        let each = rule.logs().iter().filter_map(|log| log.selector()).map(|name| {
            let name = PyString::intern(py, name);
            let mut sources = Vec::new();
            for (values, object) in layers {
                sources.extend(values.get_item(&name)?.map(|value| Source::Value(value.unbind())));
                sources.extend(object.clone().map(|object| Source::Of(object.unbind())));
            }
            sources.extend(first.map(|name| Source::OfFirst(name.map(|name| name.clone().unbind()))));
            Ok(Selector { name: name.unbind(), sources })
        });
        Ok(Self { each: each.collect::<PyResult<_>>()? })
    }

    /// Returns true if the rule has no selectors.
    pub(crate) fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// Returns what each selector has, in the order of the rule's logs: a value, or a callable that returns it.
    pub(crate) fn find<'py>(&self, py: Python<'py>, call: Call<'_, 'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.each.iter().map(|selector| selector.find(py, call)).collect()
    }
}

impl Selector {
    fn find<'py>(&self, py: Python<'py>, call: Call<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let name = self.name.bind(py);
        if let Some(given) = call.given
            && let Some(value) = given.get_item(name)?
        {
            return Ok(value);
        }
        for source in &self.sources {
            let found = match source {
                Source::Value(value) => Some(value.bind(py).clone()),
                Source::Of(object) => member(object.bind(py), name)?,
                Source::OfFirst(passed_as) => {
                    match call.first(passed_as.as_ref().map(|name| name.bind(py)))? {
                        Some(first) => member(&first, name)?,
                        None => None,
                    }
                }
            };
            if let Some(value) = found {
                return Ok(value);
            }
        }
        Err(SelectorError::new_err(name.to_string()))
    }
}

impl<'py> Call<'_, 'py> {
    fn first(&self, passed_as: Option<&Bound<'py, PyString>>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(args) = self.args
            && !args.is_empty()
        {
            return args.get_item(0).map(Some);
        }
        match (self.kwargs, passed_as) {
            (Some(kwargs), Some(name)) => kwargs.get_item(name),
            _ => Ok(None),
        }
    }
}

/// Returns the member of an object that has this name. A dictionary has items; other objects have attributes, and
/// perhaps items too.
fn member<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    if !object.is_instance_of::<PyDict>() {
        match object.getattr(name) {
            Ok(value) => return Ok(Some(value)),
            Err(error) if error.is_instance_of::<PyAttributeError>(py) => {}
            Err(error) => return Err(error),
        }
    }
    match object.get_item(name) {
        Ok(value) => Ok(Some(value)),
        // An object without items raises a type error, and so does one whose items have numbers.
        Err(error)
            if error.is_instance_of::<PyLookupError>(py) || error.is_instance_of::<PyTypeError>(py) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Converts a value to the bytes that are part of a log's name. `None` is no value; bytes stay as they are; anything
/// else is converted with `str`.
pub(crate) fn text(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if value.is_none() {
        return Ok(None);
    }
    if let Ok(text) = value.cast::<PyString>() {
        return encoded(text).map(Some);
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Some(bytes.as_bytes().to_vec()));
    }
    if is_awaitable(value)? {
        let message = format!(
            "the value of a selector must be awaited, but the limited function is not async: {value}"
        );
        // Otherwise Python would warn that the coroutine was never awaited, which the error says already.
        let _ = value.call_method0("close");
        return Err(PyTypeError::new_err(message));
    }
    encoded(&value.str()?).map(Some)
}

/// Returns true if the value has to be awaited.
pub(crate) fn is_awaitable(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if value.is_none() || value.is_instance_of::<PyString>() || value.is_instance_of::<PyInt>() {
        return Ok(false);
    }
    value.hasattr("__await__")
}

/// Encodes a text as UTF-8, with lone surrogates as they are.
pub(crate) fn encoded(text: &Bound<'_, PyString>) -> PyResult<Vec<u8>> {
    match text.to_cow() {
        Ok(text) => Ok(text.into_owned().into_bytes()),
        // Python decodes bytes of a header that are not UTF-8 to lone surrogates. They are part of a value as well.
        Err(_) => text.call_method1("encode", ("utf-8", "surrogatepass"))?.extract(),
    }
}
