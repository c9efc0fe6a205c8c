//! Mistakes that the compiler finds, and what it says about them. `TRYBUILD=overwrite` writes it down anew.

#[test]
fn mistakes_are_pointed_at() {
    trybuild::TestCases::new().compile_fail("tests/mistakes/*.rs");
}
