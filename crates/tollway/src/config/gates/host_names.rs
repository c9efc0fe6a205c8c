//! Reads the setting `hosts` of a gate: the names by which browsers may ask it.
//!
//! ```yaml
//! admin: { listen: 10.0.0.5:8082, hosts: [tollway.internal] }
//! ```

use std::fmt;

use crate::config::errors::ErrorCollector;
use crate::config::fields::{refuse, scalar_text};
use crate::config::yaml::{YamlEntry, YamlValue, shorten};

/// The name of the setting.
pub(super) const HOSTS: &str = "hosts";

/// The longest name that DNS has, in bytes.
const NAME_MAX: usize = 253;

/// The names by which browsers may ask a gate, beside addresses and `localhost`. By default there are none: whoever
/// owns a name can let it point to any address, and then ask the gate there from the visitors of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames(Vec<String>);

impl HostNames {
    /// The list without a name.
    pub const NONE: Self = Self(Vec::new());

    /// Returns whether a name is listed, in any case.
    pub fn contain(&self, name: &str) -> bool {
        self.0.iter().any(|listed| listed.eq_ignore_ascii_case(name))
    }

    /// Returns whether no name is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn read(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Self> {
        let must_be = "must be a list of host names, such as [tollway.internal]";
        let YamlValue::List(items) = &entry.value.value else { return refuse(entry, must_be, errors) };
        let mut names = Vec::with_capacity(items.len());
        let mut valid = true;
        for item in items {
            let text = scalar_text(item).unwrap_or_default();
            if is_host_name(text) {
                names.push(text.to_owned());
            } else {
                let detail = "must be a host name without a port, such as tollway.internal, not";
                errors.add(item.at, format!("{}: {detail} \"{}\"", entry.key.quoted(), shorten(text)));
                valid = false;
            }
        }
        valid.then_some(Self(names))
    }
}

/// Writes the names, separated by spaces.
impl fmt::Display for HostNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    text.len() <= NAME_MAX && text.split('.').all(is_label)
}
