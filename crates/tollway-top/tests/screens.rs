//! Draws screens with the backend for tests, and compares them with the files in `tests/golden`.
//!
//! `UPDATE_GOLDEN=1 cargo test -p tollway-top` writes the files again. Look at the difference before you commit it.
#![allow(clippy::unwrap_used, reason = "what a test finds missing is a failed test")]

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use std::{env, fs};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::{Value, json};
use tollway_client::http::{LiveEvent, ServerSentEvent};
use tollway_top::{App, Theme};

const NOW: Duration = Duration::from_secs(60);

fn event(name: &str, data: &Value) -> LiveEvent {
    let event = ServerSentEvent { name: name.to_owned(), data: data.to_string() };
    LiveEvent::from_event(&event).unwrap().unwrap()
}

fn history() -> Value {
    let wave = |size: u64| (0..300).map(|second: u64| size * (20 + second % 60) / 40).collect::<Vec<_>>();
    json!({
        "step": 1, "until": 1_700_000_000.1, "allowed": wave(600), "denied": wave(60), "degraded": vec![0; 300],
        "limits": [{
            "name": "RequestsPerIPAddress", "kind": "limit", "step": 10,
            "decided": (0..60).map(|point: u64| point * point).collect::<Vec<_>>(), "denied": vec![0; 60],
        }],
    })
}

fn limit(name: &str, kind: &str, numbers: &str, allowed: u64, denied: u64, share: Option<f64>) -> Value {
    json!({
        "name": name, "kind": kind, "numbers": numbers, "allowed": allowed, "denied": denied, "degraded": 0,
        "denied_share": share,
    })
}

const LOGIN: &str = "burst 5, 10 per 1h";
const ADDRESS: &str = "burst 100, 20 per 1s";

fn busy(limit: &str, numbers: &str, id: &str, count: (u64, u64), retry_after: Option<f64>) -> Value {
    let (count_min, count_max) = count;
    json!({
        "limit": limit, "kind": "limit", "id": id, "count_min": count_min, "count_max": count_max,
        "retry_after": retry_after, "numbers": numbers,
    })
}

fn denial(ago: f64, gate: &str, limit: &str, id: &str, retry_after: Option<f64>) -> Value {
    json!({
        "at": 1_700_000_001.1 - ago, "gate": gate, "limit": limit, "kind": "limit", "id": id, "cost": 1,
        "retry_after": retry_after,
    })
}

fn snapshot() -> Value {
    json!({
        "at": 1_700_000_001.1,
        "server": {
            "version": "0.1.0", "host": "edge-1", "uptime": 93_784.5, "healthy": true, "draining": false,
            "show_ids": "plain", "watch": true,
        },
        "totals": {"allowed": 1_204, "denied": 96, "degraded": 0},
        "latency": {"p50": 0.000_021, "p99": 0.001_48},
        "limits": [
            limit("LoginsPerAccount", "limit", LOGIN, 4, 61, Some(0.941)),
            limit("RequestsPerIPAddress", "limit", ADDRESS, 1_120, 35, Some(0.031)),
            limit("upload", "rule", "Or('10/s', 'user:100/h')", 80, 0, Some(0.0)),
            limit("shop/account", "descriptor", "3 per 1m", 0, 0, None),
        ],
        "store": {
            "kind": "redis", "buckets": 12_345, "max_buckets": 10_000_000, "client_buckets": 0,
            "max_client_buckets": 5_000_000, "degraded_since": null,
            "nodes": [
                {"address": "10.0.0.5:6379", "state": "up", "for": null, "reason": null},
                {"address": "10.0.0.6:6379", "state": "unreachable", "for": 12.0, "reason": "connection refused"},
            ],
        },
        "gates": [
            {"name": "http", "address": "0.0.0.0:8080", "connections": 412, "max_connections": 10_000, "refused": 0, "evicted": 3, "requests": 1_290},
            {"name": "text", "address": "0.0.0.0:2000", "connections": null, "max_connections": null, "refused": 0, "evicted": 0, "requests": 10},
            {"name": "admin", "address": "127.0.0.1:8082", "connections": 2, "max_connections": 100, "refused": 0, "evicted": 0, "requests": null},
        ],
        "top_denied": [
            busy("LoginsPerAccount", LOGIN, "mallory", (2_901, 2_933), Some(341.2)),
            busy("LoginsPerAccount", LOGIN, "trudy@example.com", (412, 412), Some(12.5)),
            busy("RequestsPerIPAddress", ADDRESS, "2001:db8::/64", (88, 88), Some(0.0)),
        ],
        "top_spent": [busy("RequestsPerIPAddress", ADDRESS, "192.0.2.7", (61_200, 61_200), Some(0.0))],
        "last_denials": [
            denial(0.1, "http", "LoginsPerAccount", "mallory", Some(341.3)),
            denial(0.4, "resp", "RequestsPerIPAddress", "2001:db8::/64", Some(0.046)),
            denial(72.0, "http", "LoginsPerAccount", "trudy@example.com", None),
        ],
    })
}

fn app() -> App {
    let mut app = App::default();
    app.apply(event("history", &history()));
    app.apply(event("snapshot", &snapshot()));
    app
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\t' => KeyCode::Tab,
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        assert!(app.press(KeyEvent::new(code, KeyModifiers::NONE)).is_continue());
    }
}

fn drawn(app: &App, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let theme = Theme { has_colors: true };
    terminal.draw(|frame| app.draw(NOW, theme, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

/// Returns the lines of a screen.
fn lines(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let line: String = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect();
        writeln!(text, "{}", line.trim_end()).unwrap();
    }
    text
}

fn check(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(file, text).unwrap();
        return;
    }
    let expected = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert!(text == expected, "{name} differs:\n{text}");
}

#[test]
fn screens_of_every_size_are_as_the_files_say() {
    for (width, height) in [(80, 24), (120, 40), (160, 30), (40, 16)] {
        check(&format!("{width}x{height}"), &lines(&drawn(&app(), width, height)));
    }
}

#[test]
fn the_page_shows_the_screen() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/top.md");
    let screen = format!("```text\n{}```\n", lines(&drawn(&app(), 80, 24)));
    assert!(fs::read_to_string(page).unwrap().contains(&screen), "{screen}");
}

#[test]
fn one_screen_is_text_with_every_row() {
    let text = tollway_top::text(&app(), 100);
    check("once", &format!("{text}\n"));
}

#[test]
fn keys_sort_filter_and_switch_lists() {
    let mut app = app();
    press(&mut app, "sp\t");
    check("sorted-by-denials-and-spent", &lines(&drawn(&app, 80, 24)));
    press(&mut app, "d/MALL");
    check("typing-a-filter", &lines(&drawn(&app, 80, 24)));
    press(&mut app, "\n");
    assert!(lines(&drawn(&app, 80, 24)).contains("filter: MALL  q quit"));
    press(&mut app, "\x1b?");
    check("help", &lines(&drawn(&app, 80, 24)));
}

#[test]
fn a_lost_connection_keeps_the_screen_until_the_server_is_back() {
    let mut app = app();
    app.set_lost("no server at 127.0.0.1:8082; start one with \"tollway serve\"".to_owned(), NOW / 2);
    app.set_lost(
        "no server at 127.0.0.1:8082; start one with \"tollway serve\"".to_owned(),
        NOW / 2 + NOW / 4,
    );
    check("lost", &lines(&drawn(&app, 80, 24)));
    app.apply(event("history", &history()));
    assert!(!lines(&drawn(&app, 80, 24)).contains("connection lost"));
}

#[test]
fn a_paused_screen_stays_while_figures_are_taken() {
    let mut app = app();
    press(&mut app, " ");
    let mut later = snapshot();
    later["totals"] = json!({"allowed": 7, "denied": 0, "degraded": 0});
    app.apply(event("snapshot", &later));
    let screen = lines(&drawn(&app, 80, 24));
    assert!(screen.contains("allowed 1,204/s") && screen.contains("PAUSED"), "{screen}");
    press(&mut app, " ");
    let screen = lines(&drawn(&app, 80, 24));
    assert!(screen.contains("allowed 7/s") && !screen.contains("PAUSED"), "{screen}");
}

#[test]
fn a_server_that_counts_no_ids_says_why_the_lists_are_empty() {
    let mut app = App::default();
    let mut off = snapshot();
    off["server"]["watch"] = json!(false);
    for list in ["top_denied", "top_spent", "last_denials"] {
        off[list] = json!([]);
    }
    app.apply(event("snapshot", &off));
    let screen = lines(&drawn(&app, 80, 24));
    assert_eq!(screen.matches("The server counts no ids: its configuration has \"watch: off\".").count(), 2);
}

#[test]
fn why_has_the_numbers_of_an_override() {
    let mut app = App::default();
    let mut vip = snapshot();
    let numbers = "burst 50, 100 per 1h";
    vip["top_denied"] = json!([busy("LoginsPerAccount", numbers, "vip", (7, 7), Some(1.0))]);
    app.apply(event("snapshot", &vip));
    let screen = lines(&drawn(&app, 120, 40));
    assert!(screen.contains(&format!("over {numbers}")), "{screen}");
}

#[test]
fn a_rule_is_shown_by_who_asked() {
    let mut app = App::default();
    let mut rules = snapshot();
    let of_rule = |id: &str| {
        let mut entry = busy("upload", "user:1/m", id, (7, 7), None);
        entry["kind"] = json!("rule");
        entry
    };
    rules["top_denied"] = json!([of_rule("user=vova"), of_rule("")]);
    app.apply(event("snapshot", &rules));
    let screen = lines(&drawn(&app, 120, 40));
    let row = |id: &str| {
        let is_row = |line: &&str| line.split_whitespace().take(3).eq(["upload", id, "7"]);
        screen.lines().filter(is_row).count()
    };
    assert_eq!((row("user=vova"), row("–")), (1, 1), "{screen}");
}

#[test]
fn colors_say_what_is_allowed_and_denied_and_can_be_turned_off() {
    let colors = |buffer: &Buffer| -> Vec<Color> { buffer.content().iter().map(|cell| cell.fg).collect() };
    let colored = colors(&drawn(&app(), 80, 24));
    assert!(colored.contains(&Color::Green) && colored.contains(&Color::Red));
    let area = ratatui::layout::Rect::new(0, 0, 80, 24);
    let mut plain = Buffer::empty(area);
    app().draw(NOW, Theme { has_colors: false }, area, &mut plain);
    assert!(plain.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
}

#[test]
fn no_size_and_no_key_panics() {
    let keys = "ss\t\t\tsd p/x\n\x1b?? jjjjjjjj\tkkkk\tjjjjjjjjjjjjjjjjjj";
    for (width, height) in [(1, 1), (29, 30), (30, 8), (31, 9), (60, 12), (119, 15), (120, 8), (250, 100)] {
        let mut app = App::default();
        drawn(&app, width, height);
        app.apply(event("history", &history()));
        drawn(&app, width, height);
        app.apply(event("snapshot", &snapshot()));
        for key in keys.chars() {
            press(&mut app, &key.to_string());
            drawn(&app, width, height);
        }
    }
}

#[test]
fn a_window_that_is_too_small_says_how_large_it_must_be() {
    for (width, height, expected) in [
        (29, 3, "The window is too small: it\nneeds 30 x 8.\n\n"),
        (80, 7, "The window is too small: it needs 30 x 8.\n\n\n\n\n\n\n"),
        (14, 4, "The window is\ntoo small: it\nneeds 30 x 8.\n\n"),
    ] {
        assert_eq!(lines(&drawn(&App::default(), width, height)), expected);
    }
}
