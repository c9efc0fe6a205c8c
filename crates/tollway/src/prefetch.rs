//! Asks the processor to fetch memory that is about to be needed.
//!
//! The one `unsafe` of the workspace. A prefetch is a hint: for any address whatever it neither faults nor changes
//! anything a program can observe, so the pointer may be stale by the time it is used, and often is while a table grows.
#![allow(unsafe_code)]

/// Fetches the cache line that `address` is in.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: PREFETCHT0 does not access memory architecturally; it is defined for every address, valid or not.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
