//! Prefetches memory: asks the processor to fetch a cache line that is needed soon.
//!
//! This is the only `unsafe` code of the workspace. A prefetch is a hint: it is defined for every address, and never
//! faults or changes anything that a program can observe. So the pointer may be stale, and often is while a table
//! grows.
#![allow(unsafe_code)]

/// Starts to fetch the cache line that contains `address`. Does nothing on other processors than x86-64.
#[inline]
pub fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: PREFETCHT0 does not access memory architecturally; it is defined for every address, valid or not.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
