//! Items that cannot be limited, and functions whose return type cannot hold a denial.

use tollway_macros::limit;

#[limit("10/s")]
fn nothing() {}

#[limit("10/s")]
fn no_result() -> (u32, u32) {
    (1, 2)
}

#[limit("10/s")]
fn no_async_fn() -> impl Future<Output = Result<(), ()>> {
    async { Ok(()) }
}

#[limit("10/s")]
const fn at_compile_time() -> Result<(), ()> {
    Ok(())
}

#[limit("10/s")]
fn nothing_to_say() -> Option<u32> {
    None
}

trait Greet {
    #[limit("10/s")]
    fn no_body(&self) -> Result<(), ()>;
}

#[limit("10/s")]
struct NoFunction;

fn main() {}
