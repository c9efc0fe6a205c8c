//! The commands of `docs/tls.md` happen as shown, with the certificates that they make.

use std::fs;
use std::path::Path;

use crate::page::{Page, examples_of, printed, shell, timeless};
use crate::run::file;
use crate::serving::Serving;

/// The address that the page has for the server.
const ON_THE_PAGE: &str = "localhost:8443";

#[test]
fn the_certificates_on_the_page_let_its_clients_in() {
    let page = Page::read("docs/tls.md");
    let directory = Path::new(&file("certificates", "")).with_file_name("tls-page");
    fs::create_dir_all(&directory).unwrap();
    let [authority, ask, client, ask_with_certificate] = page.blocks("console")[..] else {
        panic!("the page has four sessions");
    };
    for (command, _) in [examples_of(authority), examples_of(client)].concat() {
        if !command.starts_with("tollway ") {
            let ran = shell(command).current_dir(&directory).output().unwrap();
            assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
        }
    }
    for (config, session) in [(page.blocks("yaml")[0], ask), (page.blocks("yaml")[1], ask_with_certificate)] {
        let path = directory.join("tollway.yaml");
        fs::write(&path, config).unwrap();
        let serving = Serving::start(&["--config", path.to_str().unwrap(), "--http", "127.0.0.1:0"], &[]);
        let local = serving.addr.replace("https://127.0.0.1", "localhost");
        for (command, shown) in examples_of(session) {
            let command = command.replace(ON_THE_PAGE, &local);
            let printed = printed(shell(&command).current_dir(&directory));
            assert_eq!(timeless(&printed), timeless(&shown.replace(ON_THE_PAGE, &local)), "{command}");
        }
    }
}
