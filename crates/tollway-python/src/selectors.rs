//! Where the values of selectors come from.
//!
//! ```text
//! @rl.limit(And('username:10/5m', 'apikey:100/m'), username=get_username, selector=api)
//! def do_stuff(self): ...
//!
//! username    the keyword argument, which is called
//! apikey      api.apikey or api['apikey'], or else self.apikey, called if they are methods
//! ```
//!
//! Who is asked is known when a function is decorated; what they say is asked anew for each call.

use pyo3::exceptions::{PyAttributeError, PyLookupError, PyTypeError};
use pyo3::import_exception;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyString, PyTuple};
use tollway::core::Rule;

import_exception!(tollway._errors, SelectorError);

/// The selectors of one rule, and who is asked for their values.
pub(crate) struct Selectors {
    each: Vec<Selector>,
}

struct Selector {
    name: Py<PyString>,
    sources: Vec<Source>,
}

/// Somebody who may know a value.
enum Source {
    /// It was given.
    Value(Py<PyAny>),
    /// A member of this, or an item.
    Of(Py<PyAny>),
    /// A member of the first argument, which may be passed by this name.
    OfFirst(Option<Py<PyString>>),
}

/// What was passed with one call.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a, 'py> {
    /// By place.
    pub(crate) args: Option<&'a Bound<'py, PyTuple>>,
    /// By name.
    pub(crate) kwargs: Option<&'a Bound<'py, PyDict>>,
    /// Values for selectors, which come before all others.
    pub(crate) given: Option<&'a Bound<'py, PyDict>>,
}

/// Keyword arguments and a `selector` object, as they were given together.
pub(crate) type Layer<'py> = (Bound<'py, PyDict>, Option<Bound<'py, PyAny>>);

impl Selectors {
    /// Those of a rule. The layers are asked in order; then the first argument, if there is one.
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

    /// The value of each, in the order of the rule's logs. Callables are called.
    pub(crate) fn values<'py>(
        &self,
        py: Python<'py>,
        call: Call<'_, 'py>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.each.iter().map(|selector| selector.value(py, call)).collect()
    }
}

impl Selector {
    fn value<'py>(&self, py: Python<'py>, call: Call<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = self.find(py, call)?;
        if value.is_callable() { value.call0() } else { Ok(value) }
    }

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

/// What an object has by this name. A dictionary has items; whatever else there is has attributes, and perhaps items too.
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
        // A type error is what an object without items raises, and one whose items have numbers.
        Err(error)
            if error.is_instance_of::<PyLookupError>(py) || error.is_instance_of::<PyTypeError>(py) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A value as part of a name. `None` is none; bytes are themselves; whatever else there is is what `str` makes of it.
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
        let message =
            format!("a selector's value must be awaited, and what is limited is not async: {value}");
        // Python would complain that nobody awaited it, which is what this says already.
        let _ = value.call_method0("close");
        return Err(PyTypeError::new_err(message));
    }
    encoded(&value.str()?).map(Some)
}

/// Must it be awaited?
pub(crate) fn is_awaitable(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if value.is_none() || value.is_instance_of::<PyString>() || value.is_instance_of::<PyInt>() {
        return Ok(false);
    }
    value.hasattr("__await__")
}

fn encoded(text: &Bound<'_, PyString>) -> PyResult<Vec<u8>> {
    match text.to_cow() {
        Ok(text) => Ok(text.into_owned().into_bytes()),
        // What a header has that is not UTF-8 stands as lone surrogates, which are part of a value as well.
        Err(_) => text.call_method1("encode", ("utf-8", "surrogatepass"))?.extract(),
    }
}
