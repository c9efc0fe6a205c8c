//! Reads the charges and rules of a call from Python objects.
//!
//! ```text
//! ("login", "alice")                          a charge of 1
//! ("bytes", "alice", 512)                     a charge of 512
//! (InlineLimit(count=10, period=60), "alice") a charge that brings the numbers of its limit
//! ("upload", {"user": "alice"})               a rule, and the values of its selectors
//! ("upload", {"user": "alice"}, "cats")       the same rule, counted under another key
//! ```

use std::borrow::Cow;

use pyo3::exceptions::PyTypeError;
use pyo3::import_exception;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyMapping, PySequence, PyString};
use tollway::core::rule::RuleRef;
use tollway::core::{ChargeRequest, RuleRequest, Verb};

use crate::inline_limit::InlineLimit;
use crate::selectors::encoded;

import_exception!(tollway._errors, InvalidCost);

/// A verb, and the charges and rules that it is about.
pub(crate) struct BillRequest {
    pub(crate) verb: Verb,
    pub(crate) charges: Vec<ChargeRequest<'static>>,
    pub(crate) rules: Vec<RuleRequest<'static>>,
}

impl BillRequest {
    /// Reads the charges and rules of a call. The costs of a reset have no effect.
    pub(crate) fn read(
        verb: Verb,
        charges: &[Bound<'_, PyAny>],
        rules: &[Bound<'_, PyAny>],
    ) -> PyResult<Self> {
        let mut charges = charges.iter().map(read_charge).collect::<PyResult<Vec<_>>>()?;
        if !verb.has_cost() {
            charges.iter_mut().for_each(|charge| charge.cost = 0);
        }
        let rules = rules.iter().map(read_rule).collect::<PyResult<Vec<_>>>()?;
        Ok(Self { verb, charges, rules })
    }
}

/// Returns the request for a charge of `cost` to the bucket of `id`, under a limit by name or by its numbers.
pub(crate) fn charge_request(
    limit: &Bound<'_, PyAny>,
    id: &Bound<'_, PyAny>,
    cost: &Bound<'_, PyAny>,
) -> PyResult<ChargeRequest<'static>> {
    if let Ok(inline) = limit.cast::<InlineLimit>() {
        let (id, cost) = (id_bytes(id)?, cost_units(cost)?);
        return Ok(ChargeRequest::inline(inline.get().0, &id, cost).into_owned());
    }
    let limit = text_of("limit must be a str or an InlineLimit", limit)?;
    let (id, cost) = (id_bytes(id)?, cost_units(cost)?);
    Ok(ChargeRequest::new(&limit, &id, cost).into_owned())
}

fn read_charge(charge: &Bound<'_, PyAny>) -> PyResult<ChargeRequest<'static>> {
    let parts = parts("a charge is (limit, id) or (limit, id, cost)", charge)?;
    let one = PyInt::new(charge.py(), 1).into_any();
    charge_request(&parts[0], &parts[1], parts.get(2).unwrap_or(&one))
}

fn read_rule(rule: &Bound<'_, PyAny>) -> PyResult<RuleRequest<'static>> {
    let parts = parts("a rule is (name, selectors) or (name, selectors, key)", rule)?;
    let name = text_of("the name of a rule must be a str", &parts[0])?;
    let given =
        parts[1].cast::<PyMapping>().map_err(|_| wrong_type("selectors must be a dict", &parts[1]))?;
    let mut selectors = Vec::with_capacity(given.len()?);
    for item in given.items()?.iter() {
        let (selector, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        let selector = text_of("the name of a selector must be a str", &selector)?;
        selectors.push((Cow::Owned(selector), Cow::Owned(selector_value(&value)?)));
    }
    let key = parts.get(2).map(|key| text_of("the key of a rule must be a str", key)).transpose()?;
    Ok(RuleRequest { rule: RuleRef::Named(name), key: key.map(Cow::Owned), selectors })
}

/// Returns the two or three parts of a charge or a rule.
fn parts<'py>(expected: &str, given: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let wrong = || PyTypeError::new_err(format!("{expected}, not {given}"));
    // A text is a sequence too: of letters.
    if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
        return Err(wrong());
    }
    let sequence = given.cast::<PySequence>().map_err(|_| wrong())?;
    let count = sequence.len()?;
    if !(2..=3).contains(&count) {
        return Err(wrong());
    }
    (0..count).map(|index| sequence.get_item(index)).collect()
}

/// Returns the bytes of a selector's value. `None` is no value, and so is an empty text.
fn selector_value(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if value.is_none() {
        return Ok(Vec::new());
    }
    bytes_of("the value of a selector must be a str, bytes, an int or None", value)
}

fn id_bytes(id: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    bytes_of("id must be a str, bytes or an int", id)
}

fn bytes_of(expected: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = value.cast::<PyString>() {
        return encoded(text);
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        return encoded(&value.str()?);
    }
    // An id of `None` or `True` would be one bucket for everybody, so no other type is converted.
    Err(wrong_type(expected, value))
}

fn text_of(expected: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = value.cast::<PyString>().map_err(|_| wrong_type(expected, value))?;
    Ok(text.to_cow()?.into_owned())
}

fn cost_units(cost: &Bound<'_, PyAny>) -> PyResult<u64> {
    if !cost.is_instance_of::<PyInt>() || cost.is_instance_of::<PyBool>() {
        return Err(wrong_type("cost must be an int", cost));
    }
    cost.extract()
        .map_err(|_| InvalidCost::new_err(format!("cost must be from 0 to {}, not {cost}", u64::MAX)))
}

/// Returns the exception for a value of another type than is expected.
pub(crate) fn wrong_type(expected: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let found = value.get_type().name().map_or_else(|_| "this type".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{expected}, not {found}"))
}
