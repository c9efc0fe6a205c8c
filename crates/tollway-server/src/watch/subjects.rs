//! Numbers the limits, rules and domains that ids are counted under.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollway_wire::http::SubjectKind;

use super::sketch::Subject;

/// The name under which rates of keys are listed that have no limit with a name.
pub(crate) const KEYS: &str = "keys";

/// Gives each name a number, which stays the same over reloads: counts outlive the policy that they were made under.
/// It grows with the names that have ever been configured, as the counters of `/metrics` do.
#[derive(Debug, Default)]
pub(crate) struct Subjects(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<(SubjectKind, Arc<str>), Subject>,
    names: Vec<(SubjectKind, Arc<str>)>,
}

impl Subjects {
    /// Returns the number of a name.
    pub(crate) fn number(&self, kind: SubjectKind, name: &str) -> Subject {
        let mut names = self.lock();
        let named = (kind, Arc::from(name));
        if let Some(subject) = names.numbers.get(&named) {
            return *subject;
        }
        let subject = Subject(u32::try_from(names.names.len()).unwrap_or(u32::MAX));
        names.names.push(named.clone());
        names.numbers.insert(named, subject);
        subject
    }

    /// Returns the name that has a number.
    pub(crate) fn name(&self, subject: Subject) -> Option<(SubjectKind, Arc<str>)> {
        self.lock().names.get(usize::try_from(subject.0).ok()?).cloned()
    }

    /// Returns the numbers that a name has, one for each kind.
    pub(crate) fn named(&self, name: &str) -> Vec<Subject> {
        let names = self.lock();
        let found = names.names.iter().zip(0..).filter(|((_, of), _)| **of == *name);
        found.map(|(_, number)| Subject(number)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the kind of the limit that has this name. Only names of descriptors and of inline limits have a slash.
pub(crate) fn kind_of_limit(name: &str) -> SubjectKind {
    match name.split_once('/') {
        None => SubjectKind::Limit,
        Some(("inline", _)) => SubjectKind::Inline,
        Some(_) => SubjectKind::Descriptor,
    }
}
