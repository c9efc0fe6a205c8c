//! `docs/rules.md` is true: what it says happens, and what it shows is what is said.

use std::fs;

use tollway::Clock;
use tollway::config::Config;
use tollway::core::{Rule, Timestamp};
use tollway::engine::Engine;
use tollway::store::memory::Memory;
use tollway::trace::{TraceReader, TraceTarget, matches};

fn page() -> String {
    fs::read_to_string("../../docs/rules.md").unwrap()
}

/// The fenced blocks in this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&*fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn every_trace_on_the_page_is_as_expected() {
    let page = page();
    let config = Config::parse(blocks(&page, "yaml")[0], "rules.md").unwrap();
    let traces = blocks(&page, "trace");
    assert!(traces.len() > 4);
    for trace in traces {
        let clock = Clock::manual(Timestamp::EPOCH);
        let mut limiter = Engine::with(config.policy.clone(), Memory::new(1_000), clock);
        for event in TraceReader::new(trace.as_bytes()).map(Result::unwrap) {
            let reply = limiter.answer(event.at, &event.request);
            assert!(matches(event.expected.as_ref().unwrap(), &reply), "{}", event.with_reply(&reply));
        }
    }
}

#[test]
fn every_rule_of_the_table_is_asked_on_the_page() {
    let page = page();
    let traces = blocks(&page, "trace").concat();
    let (_, table) = page.split_once("| rule | denies a request |\n|---|---|\n").unwrap();
    let rows: Vec<_> = table.lines().take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 10);
    for rule in rows.iter().flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)) {
        rule.parse::<Rule>().unwrap_or_else(|error| panic!("{error}"));
        assert!(traces.contains(&format!("\"{rule}\"")), "{rule} is not asked");
    }
}

#[test]
fn the_error_on_the_page_is_the_error() {
    let error = "Or('10/s', 'user:5/fortnight')".parse::<Rule>().unwrap_err();
    assert!(blocks(&page(), "text").contains(&&*format!("{error}\n")), "{error}");
    let rule: Rule = "Or( \"10/1s\", 'user:100/60m', )".parse().unwrap();
    assert_eq!(rule.to_string(), "Or('10/s', 'user:100/h')");
}
