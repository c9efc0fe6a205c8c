//! Asks the processor to fetch memory that is about to be needed.
//!
//! The one `unsafe` of the workspace. A prefetch is a hint: for any address whatever it neither faults nor changes
//! anything a program can observe, so the pointer may be stale by the time it is used, and often is while a table grows.
#![allow(unsafe_code)]

/// Fetches the cache line at `address`, and the next one too: a probe often crosses into it.
#[inline]
pub(super) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = address.cast::<i8>();
        // SAFETY: PREFETCHT0 does not access memory architecturally; it is defined for every address, valid or not.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line);
            _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(64));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
