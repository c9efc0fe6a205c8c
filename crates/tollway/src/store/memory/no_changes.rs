//! Stands in for the list of changed buckets in a program without the feature `journal`, and does nothing.

use std::marker::PhantomData;

use super::slot::StoredBucket;
use crate::hash::Tag;

/// Keeps nothing.
#[derive(Debug)]
pub(super) struct Changes<B>(PhantomData<fn() -> B>);

impl<B: StoredBucket> Changes<B> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }

    #[inline]
    pub(super) fn add(&mut self, _: &mut B::Slot) {}

    #[inline]
    pub(super) fn add_removed(&mut self, _: Tag) {}
}
