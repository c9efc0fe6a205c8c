//! The examples of `docs/http.md` and `docs/admin.md` happen as shown.

use crate::page::{Page, printed, shell, timeless};
use crate::serving::Serving;

/// The addresses that the pages have for the server.
const HTTP_ON_THE_PAGE: &str = "127.0.0.1:8080";
const ADMIN_ON_THE_PAGE: &str = "127.0.0.1:8082";

#[test]
fn the_examples_on_the_page_about_http_happen_as_shown() {
    happen_as_shown("docs/http.md", 10);
}

#[test]
fn the_examples_on_the_page_about_the_admin_gate_happen_as_shown() {
    happen_as_shown("docs/admin.md", 8);
}

/// Runs the examples of a page, which has more than `least` of them.
fn happen_as_shown(page: &str, least: usize) {
    let page = Page::read(page);
    let serving = Serving::start(&["--http", "127.0.0.1:0"], &[]);
    let mut ran = 0;
    for (command, shown) in page.examples() {
        let local = |text: &str| {
            text.replace(HTTP_ON_THE_PAGE, &serving.addr).replace(ADMIN_ON_THE_PAGE, &serving.admin)
        };
        let mut shell = shell(&local(command));
        shell.env("TOLLWAY_ADDR", &serving.addr).env("TOLLWAY_ADMIN_ADDR", &serving.admin);
        let printed = printed(&mut shell).replace("\r\n", "\n");
        assert_eq!(timeless(&printed), timeless(&local(shown)), "{command}");
        ran += 1;
    }
    assert!(ran > least, "only {ran} examples were found");
}
