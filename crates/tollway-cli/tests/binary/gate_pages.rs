//! The sessions of `docs/text.md`, `docs/throttr.md` and `docs/resp.md` happen as shown.

use crate::page::{Page, printed, shell};
use crate::serving::Serving;

#[test]
fn the_sessions_on_the_page_about_text_happen_as_shown() {
    happen_as_shown("docs/text.md");
}

#[test]
fn the_sessions_on_the_page_about_throttr_happen_as_shown() {
    happen_as_shown("docs/throttr.md");
}

#[test]
fn the_sessions_on_the_page_about_redis_clients_happen_as_shown() {
    happen_as_shown("docs/resp.md");
}

fn happen_as_shown(page: &str) {
    let page = Page::read(page);
    let serving = Serving::start(&["--http", "127.0.0.1:0"], &[]);
    assert!(!page.blocks("console").is_empty());
    let resp_port = gate(&serving, "redis://127.0.0.1:");
    for (command, shown) in page.examples() {
        let mut shell = shell(&command.replace("6380", resp_port));
        // It shows types to people only.
        shell.env("FAKETTY", "1");
        shell.env("TOLLWAY_TEXT_ADDR", gate(&serving, "udp "));
        shell.env("TOLLWAY_THROTTR_ADDR", gate(&serving, "tcp "));
        // As long as it takes: what is shown is what is answered, not how fast.
        shell.env("TOLLWAY_TEXT_TIMEOUT", "20s").env("TOLLWAY_THROTTR_TIMEOUT", "20s");
        assert_eq!(timeless(&printed(&mut shell)), timeless(shown), "{command}");
    }
}

/// Returns the address of the gate that is announced in this way.
fn gate<'a>(serving: &'a Serving, announced: &str) -> &'a str {
    serving.printed.split(announced).nth(1).unwrap().lines().next().unwrap()
}

/// Without how long a quota has still to live: how much time the page takes is not for it to know.
fn timeless(text: &str) -> String {
    let mut parts = text.split("ttl");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| {
        let number = part.trim_start_matches(['=', '"', ':']);
        text + "ttl " + number.trim_start_matches(|digit: char| digit.is_ascii_digit())
    })
}
