//! Stands in for the list of changed buckets in a program without the feature `journal`, and does nothing.

use super::slot::StoredBucket;
use crate::hash::Tag;

/// Keeps nothing.
#[derive(Debug)]
pub(super) struct Changes;

impl Changes {
    pub(super) const fn new() -> Self {
        Self
    }

    #[inline]
    pub(super) fn mark<B: StoredBucket>(&mut self, _: &mut B::Slot) {}

    #[inline]
    pub(super) fn add(&mut self, _: Tag) {}
}
