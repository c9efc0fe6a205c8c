//! Says in words what a limit, a rule or a domain allows, and what it allows one id.

use tollway::config::{ShowIds, algorithm_numbers, domain_numbers};
use tollway_core::{Algorithm, Policy};
use tollway_wire::http::SubjectKind;

use super::sketch::ShortId;

/// Returns the numbers of what has this name, as people read them; `None` if the policy has nothing of this name.
pub(super) fn numbers(policy: &Policy, kind: SubjectKind, name: &str) -> Option<String> {
    match kind {
        SubjectKind::Limit | SubjectKind::Descriptor => {
            Some(shown(policy.limit(name)?.default_algorithm(), "no default"))
        }
        SubjectKind::Rule => Some(policy.rule(name)?.limit().rule().to_string()),
        SubjectKind::Domain => policy.domain(name.as_bytes()).map(domain_numbers),
        SubjectKind::Key | SubjectKind::Inline => None,
    }
}

/// Returns the numbers that an id has, which may be those of an override; `None` if they are not known: the id was cut.
///
/// Also `None` if ids are hidden and the limit has overrides: numbers of an override would tell whose row it is.
pub(super) fn numbers_of_id(
    policy: &Policy,
    kind: SubjectKind,
    name: &str,
    id: &ShortId,
    show_ids: ShowIds,
) -> Option<String> {
    let limit = match kind {
        SubjectKind::Limit | SubjectKind::Descriptor => policy.limit(name)?,
        _ => return numbers(policy, kind, name),
    };
    if limit.overrides().len() == 0 {
        return numbers(policy, kind, name);
    }
    let is_known = show_ids == ShowIds::Plain && !id.is_cut();
    is_known.then(|| shown(limit.algorithm_for(id.bytes()), "no limit"))
}

fn shown(algorithm: Option<&Algorithm>, none: &str) -> String {
    algorithm.map_or_else(|| none.to_owned(), algorithm_numbers)
}
