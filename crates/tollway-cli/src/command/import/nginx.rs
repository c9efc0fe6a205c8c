//! Converts nginx's `limit_req_zone` and `limit_req` to token buckets.
//!
//! nginx counts the requests in excess of a rate, and rejects when more than `burst` are. The first request at rest is
//! not in excess, so it admits what a token bucket of `burst + 1` admits.

use std::collections::HashMap;
use std::iter::successors;
use std::time::Duration;

use tollway::core::algorithm::TokenBucket;

use super::directives::{Directive, Word, parse};
use super::imported::{ImportError, Imported, ImportedLimit, Position};

/// The zone that a `limit_req_zone` defines.
struct Zone<'a> {
    at: Position,
    name: &'a str,
    /// The expression that identifies a client.
    key: &'a str,
    /// The word with the rate, or the directive without one.
    rate_at: Position,
    count: u64,
    period: Duration,
    sync_at: Option<Position>,
}

impl Zone<'_> {
    fn is_of_addresses(&self) -> bool {
        matches!(self.key, "$binary_remote_addr" | "$remote_addr")
    }
}

/// The use that a `limit_req` makes of a zone.
struct Use<'a> {
    at: Position,
    zone: &'a str,
    zone_at: Position,
    burst: u64,
    burst_at: Position,
    delay: Delay,
    /// The server and the location that it is in.
    place: String,
}

/// The `server_name` of each block that has one.
type ServerNames<'a> = HashMap<usize, &'a Directive>;

/// Says which of the requests in excess of the rate wait.
#[derive(Clone, Copy)]
enum Delay {
    /// All wait.
    All,
    /// Those after so many wait.
    After(u64),
    /// None waits.
    None,
}

/// Returns the limits of a file, and everything else in it that limits.
pub(crate) fn import(text: &str) -> Result<Imported, Vec<ImportError>> {
    let directives = parse(text).map_err(|error| vec![error])?;
    let is_name = |directive: &&Directive| directive.name() == "server_name";
    let server_names: ServerNames<'_> =
        directives.iter().filter(is_name).filter_map(|named| Some((named.parent?, named))).collect();
    let (mut zones, mut uses, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for directive in &directives {
        let read = match directive.name() {
            "limit_req_zone" => zone(directive, &zones).map(|zone| zones.push(zone)),
            "limit_req" => {
                let place = place(directive, &directives, &server_names);
                used(directive, place).map(|used| uses.push(used))
            }
            _ => Ok(()),
        };
        errors.extend(read.err());
    }
    let mut imported = Imported::default();
    for zone in &zones {
        errors.extend(add_zone(zone, &uses, &mut imported).err());
    }
    if !errors.is_empty() {
        errors.sort_by_key(|error| error.at);
        return Err(errors);
    }
    leave_out_of_zones(&zones, &mut imported);
    leave_out_replaced(&directives, &server_names, &mut imported);
    for missing in uses.iter().filter(|used| zones.iter().all(|zone| zone.name != used.zone)) {
        let text = format!("limit_req zone={}: no limit_req_zone of this file defines it", missing.zone);
        imported.leave_out(missing.zone_at, text);
    }
    let computed = computed_variables(&directives);
    for directive in &directives {
        if let Some(text) = left_out(directive, &zones, &computed) {
            imported.leave_out(directive.at(), text);
        }
    }
    imported.left_out.sort_by_key(|left_out| left_out.at);
    imported.finish("the file has no limit_req_zone (files that it includes are imported by themselves)")
}

/// Reads `limit_req_zone KEY zone=NAME:SIZE rate=RATE`.
fn zone<'a>(directive: &'a Directive, before: &[Zone<'_>]) -> Result<Zone<'a>, ImportError> {
    let [key, parameters @ ..] = directive.arguments() else {
        let message = "limit_req_zone needs a key, such as $binary_remote_addr, and zone=NAME:SIZE rate=RATE";
        return Err(ImportError::new(directive.at(), message));
    };
    let (mut name, mut rate_at, mut sync_at) = (None, directive.at(), None);
    // nginx's own default.
    let (mut count, mut period) = (1, Duration::from_secs(1));
    for word in parameters {
        match word.text.split_once('=') {
            Some(("zone", value)) => name = Some(value.split(':').next().unwrap_or(value)),
            Some(("rate", value)) => ((count, period), rate_at) = (rate(word, value)?, word.at),
            _ if word.text == "sync" => sync_at = Some(word.at),
            _ => return Err(unknown_parameter(word, "zone=NAME:SIZE, rate=RATE or sync")),
        }
    }
    let name = name.filter(|name| !name.is_empty()).ok_or_else(|| {
        ImportError::new(directive.at(), "limit_req_zone needs zone=NAME:SIZE, such as zone=one:10m")
    })?;
    if let Some(other) = before.iter().find(|zone| zone.name == name) {
        let message =
            format!("zone {name:?} is defined a second time; the first is at line {}", other.at.line);
        return Err(ImportError::new(directive.at(), message));
    }
    Ok(Zone { at: directive.at(), name, key: &key.text, rate_at, count, period, sync_at })
}

/// Reads `10r/s` or `30r/m`.
fn rate(word: &Word, value: &str) -> Result<(u64, Duration), ImportError> {
    let seconds = match value.get(value.len().saturating_sub(3)..) {
        Some("r/s") => Some(1),
        Some("r/m") => Some(60),
        _ => None,
    };
    let count = value.get(..value.len().saturating_sub(3)).and_then(whole_number).filter(|count| *count > 0);
    match (count, seconds) {
        (Some(count), Some(seconds)) => Ok((count, Duration::from_secs(seconds))),
        _ => {
            let message = format!("{value:?} is not a rate; write it as 10r/s or 30r/m");
            Err(ImportError::new(word.at, message))
        }
    }
}

fn whole_number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn unknown_parameter(word: &Word, known: &str) -> ImportError {
    ImportError::new(word.at, format!("unknown parameter {:?}; it must be {known}", word.text))
}

/// Reads `limit_req zone=NAME burst=NUMBER nodelay` or `delay=NUMBER`.
fn used<'a>(directive: &'a Directive, place: String) -> Result<Use<'a>, ImportError> {
    let (mut zone, mut burst, mut delay) = (None, (0, directive.at()), Delay::All);
    let number = |word: &Word, value: &str| {
        whole_number(value)
            .ok_or_else(|| ImportError::new(word.at, format!("{value:?} is not a whole number")))
    };
    for word in directive.arguments() {
        match word.text.split_once('=') {
            Some(("zone", name)) => zone = Some((name, word.at)),
            Some(("burst", value)) => burst = (number(word, value)?, word.at),
            Some(("delay", value)) => delay = Delay::After(number(word, value)?),
            _ if word.text == "nodelay" => delay = Delay::None,
            _ => return Err(unknown_parameter(word, "zone=NAME, burst=NUMBER, delay=NUMBER or nodelay")),
        }
    }
    let (zone, zone_at) =
        zone.ok_or_else(|| ImportError::new(directive.at(), "limit_req needs zone=NAME"))?;
    let (burst, burst_at) = burst;
    Ok(Use { at: directive.at(), zone, zone_at, burst, burst_at, delay, place })
}

/// Returns the blocks that a directive is in, from the outside: `server example.com, location /login`.
fn place(directive: &Directive, directives: &[Directive], server_names: &ServerNames<'_>) -> String {
    let mut blocks = Vec::new();
    let mut inside = directive.parent;
    while let Some(index) = inside {
        let block = &directives[index];
        let words = server_names.get(&index).map_or(block.arguments(), |named| named.arguments());
        let words = std::iter::once(block.name()).chain(words.iter().map(|word| word.text.as_str()));
        blocks.push(words.collect::<Vec<_>>().join(" "));
        inside = block.parent;
    }
    // Everything else is in `http`, too.
    if blocks.len() > 1 {
        blocks.pop_if(|outermost| outermost == "http");
    }
    blocks.reverse();
    if blocks.is_empty() { "everywhere".to_owned() } else { blocks.join(", ") }
}

/// Adds a limit for each burst that a zone is used with.
fn add_zone(zone: &Zone<'_>, uses: &[Use<'_>], imported: &mut Imported) -> Result<(), ImportError> {
    let of_zone = || uses.iter().filter(|used| used.zone == zone.name);
    let mut bursts: Vec<_> = of_zone().map(|used| (used.burst, used.burst_at)).collect();
    bursts.sort_unstable();
    bursts.dedup_by_key(|(burst, _)| *burst);
    let is_unused = bursts.is_empty();
    if is_unused {
        bursts.push((0, zone.rate_at));
    }
    if bursts.len() > 1 {
        let text = format!(
            "zone {} is used with {} different bursts: nginx counts them together, and here each has a limit and \
             buckets of its own",
            zone.name,
            bursts.len()
        );
        imported.leave_out(zone.at, text);
    }
    for (burst, burst_at) in &bursts {
        let capacity =
            burst.checked_add(1).ok_or_else(|| ImportError::new(*burst_at, "the burst is too large"))?;
        TokenBucket::new(capacity, zone.count, zone.period)
            .map_err(|error| ImportError::new(zone.rate_at.max(*burst_at), error.to_string()))?;
        let wanted =
            if bursts.len() == 1 { zone.name.to_owned() } else { format!("{}-burst{burst}", zone.name) };
        let name = imported.name(&wanted);
        if name != wanted {
            let text = format!(
                "the name {wanted}: the limit is called {name}, because a name begins with a letter and has only ASCII \
                 letters, digits, \"_\", \"-\" and \".\", and no other limit has it"
            );
            imported.leave_out(zone.at, text);
        }
        let mut comments = vec![format!("limit_req_zone at line {}: the id is {}", zone.at.line, zone.key)];
        if is_unused {
            comments.push("no limit_req of this file uses it".to_owned());
        }
        for used in of_zone().filter(|used| used.burst == *burst) {
            comments.push(format!(
                "line {}: {}: burst={}{}",
                used.at.line,
                used.place,
                burst,
                used.delay.shown()
            ));
        }
        let period = if zone.period.as_secs() == 1 { "1s" } else { "1m" };
        // nginx counts every address of IPv6 by itself.
        let id = if zone.is_of_addresses() { ", id: ip, ipv6_prefix: 128" } else { "" };
        let fields = format!("burst: {capacity}, count: {}, period: {period}{id}", zone.count);
        imported.limits.push(ImportedLimit { name, comments, fields });
    }
    if let Some(at) = zone.sync_at {
        let text = format!(
            "sync of zone {}: servers share limits if they have the same store, such as redis://cache:6379",
            zone.name
        );
        imported.leave_out(at, text);
    }
    for used in of_zone() {
        let waits = match used.delay {
            Delay::All if used.burst > 0 => "requests in excess of the rate".to_owned(),
            Delay::After(free) if free < used.burst => {
                format!("those after the first {free} in excess of the rate")
            }
            _ => continue,
        };
        let text = format!(
            "limit_req zone={} makes {waits} wait; Tollway admits the same requests, at once (tollway guard delays \
             them)",
            zone.name
        );
        imported.leave_out(used.at, text);
    }
    Ok(())
}

/// Lists once, and not for each zone, what no zone becomes.
fn leave_out_of_zones(zones: &[Zone<'_>], imported: &mut Imported) {
    let Some(first) = zones.first() else { return };
    let names = zone_names(zones);
    let text = format!(
        "the size of {names}: max_buckets bounds all limits together; a full store denies new ids (on_full) where \
         nginx forgets old ones"
    );
    imported.leave_out(first.at, text);
    let keyed = || zones.iter().filter(|zone| !zone.is_of_addresses());
    if let Some(first) = keyed().next() {
        let names = zone_names(keyed());
        let text =
            format!("{names}: nginx does not limit requests whose key is empty, here they are an error");
        imported.leave_out(first.at, text);
    }
}

/// Lists each block whose `limit_req` replaces that of a block around it. nginx inherits it only into blocks that have
/// none, so a reader who adds both up would limit more than nginx does.
fn leave_out_replaced(directives: &[Directive], server_names: &ServerNames<'_>, imported: &mut Imported) {
    let mut first_uses: HashMap<Option<usize>, &Directive> = HashMap::new();
    let uses = || directives.iter().filter(|directive| directive.name() == "limit_req");
    for used in uses() {
        first_uses.entry(used.parent).or_insert(used);
    }
    for used in uses().filter(|used| first_uses[&used.parent].at() == used.at()) {
        let outside = |block: usize| directives[block].parent;
        let mut around = successors(used.parent.map(outside), |block| block.map(outside));
        if let Some(replaced) = around.find_map(|block| first_uses.get(&block)) {
            let text = format!(
                "limit_req of {} replaces that of line {}, which nginx inherits only into a block without limit_req; \
                 ask there for the limits of this block alone",
                place(used, directives, server_names),
                replaced.at().line
            );
            imported.leave_out(used.at(), text);
        }
    }
}

/// Returns `zone login`, or `zones login, api and search`.
fn zone_names<'z, 'a: 'z>(zones: impl IntoIterator<Item = &'z Zone<'a>>) -> String {
    let mut names: Vec<_> = zones.into_iter().map(|zone| zone.name).collect();
    match names.pop() {
        Some(last) if !names.is_empty() => format!("zones {} and {last}", names.join(", ")),
        last => format!("zone {}", last.unwrap_or_default()),
    }
}

impl Delay {
    fn shown(self) -> String {
        match self {
            Self::All => String::new(),
            Self::After(free) => format!(" delay={free}"),
            Self::None => " nodelay".to_owned(),
        }
    }
}

/// Returns what to say about a directive that concerns limits and has no counterpart.
fn left_out(directive: &Directive, zones: &[Zone<'_>], computed: &[ComputedVariable<'_>]) -> Option<String> {
    let said = || directive.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    let why = match directive.name() {
        "limit_req" | "limit_req_zone" => return None,
        "limit_req_status" => "the proxy chooses the status of a denied request",
        "limit_req_log_level" => "the server logs decisions at debug",
        "limit_req_dry_run" => match directive.arguments() {
            [word] if word.text == "off" => return None,
            _ => "the limits of this file deny, where nginx only logged",
        },
        "include" => "the file is not read; import it as well",
        _ if computes_variable(directive) => {
            let zones = zones_computed_by(directive, zones, computed);
            let names = zones.iter().map(|zone| zone.name).collect::<Vec<_>>().join(", ");
            return (!zones.is_empty())
                .then(|| format!("{}: the proxy computes the id of zone {names}", said()));
        }
        name if name.starts_with("limit_conn") => "connections and requests in flight are not limited",
        name if name.starts_with("limit_rate") => "bytes per second are not limited",
        // `limit_except` is about methods.
        name if name.starts_with("limit_") && name != "limit_except" => "it is not known",
        _ => return None,
    };
    Some(format!("{}: {why}", said()))
}

/// A variable that a `map` or the like computes.
struct ComputedVariable<'a> {
    name: &'a str,
    /// The texts that it is computed from: what is looked up, and the values that it can have.
    sources: Vec<&'a str>,
}

fn computes_variable(directive: &Directive) -> bool {
    matches!(directive.name(), "map" | "geo" | "split_clients")
}

/// Returns the variables that are computed, in any order.
fn computed_variables(directives: &[Directive]) -> Vec<ComputedVariable<'_>> {
    let mut computed = HashMap::new();
    for (index, directive) in directives.iter().enumerate() {
        if computes_variable(directive)
            && let [sources @ .., name] = directive.arguments()
        {
            let sources = sources.iter().map(|source| &*source.text).collect();
            computed.insert(index, ComputedVariable { name: &name.text, sources });
        } else if let Some(variable) = directive.parent.and_then(|parent| computed.get_mut(&parent))
            && let [value] = directive.arguments()
        {
            variable.sources.push(&value.text);
        }
    }
    computed.into_values().collect()
}

/// Returns the zones whose key has the variable that a `map` or the like computes, or one computed from it.
fn zones_computed_by<'z, 'a>(
    map: &Directive,
    zones: &'z [Zone<'a>],
    computed: &[ComputedVariable<'_>],
) -> Vec<&'z Zone<'a>> {
    let mut variables: Vec<&str> = map.words.last().map(|word| word.text.as_str()).into_iter().collect();
    let mut known = 0;
    while known < variables.len() {
        let variable = variables[known];
        known += 1;
        for ComputedVariable { name, sources } in computed {
            let is_source = sources.iter().any(|source| has_variable(source, variable));
            if is_source && !variables.contains(name) {
                variables.push(name);
            }
        }
    }
    zones.iter().filter(|zone| variables.iter().any(|variable| has_variable(zone.key, variable))).collect()
}

/// Returns whether a text has a variable, as `$name` or `${name}`.
fn has_variable(text: &str, variable: &str) -> bool {
    let name = variable.trim_start_matches('$');
    let mut parts = text.split('$').skip(1).map(|part| part.trim_start_matches('{'));
    parts.any(|part| {
        part.strip_prefix(name).is_some_and(|rest| {
            !rest.starts_with(|character: char| character.is_ascii_alphanumeric() || character == '_')
        })
    })
}

#[cfg(test)]
mod tests {
    use tollway::config::Config;
    use tollway::core::Timestamp;
    use tollway::core::algorithm::{Bucket, TokenBucketState};
    use tollway_testbed::{Random, seed};

    use super::*;

    /// Returns the limits that a file becomes, without comments, and what was left out. The configuration is valid.
    fn imported(text: &str) -> (String, Vec<String>) {
        let imported = import(text).unwrap_or_else(|errors| panic!("{errors:?}"));
        let yaml = imported.to_yaml("nginx.conf");
        Config::parse(&yaml, "imported.yaml").unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
        let limits = yaml.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>();
        let left_out = imported
            .left_out
            .iter()
            .map(|each| format!("{}: {}", each.at.map_or(0, |at| at.line), each.text));
        (limits.join("\n").trim().to_owned(), left_out.collect())
    }

    #[test]
    fn a_zone_becomes_a_token_bucket_with_room_for_one_more_than_its_burst() {
        for (rate, used, expected) in [
            ("rate=10r/s", "limit_req zone=a burst=20 nodelay;", "burst: 21, count: 10, period: 1s"),
            ("rate=30r/m", "limit_req zone=a;", "burst: 1, count: 30, period: 1m"),
            ("", "", "burst: 1, count: 1, period: 1s"),
            ("rate=1r/s sync", "limit_req zone=a burst=4 delay=4;", "burst: 5, count: 1, period: 1s"),
        ] {
            let text = format!("http {{ limit_req_zone $host zone=a:10m {rate}; server {{ {used} }} }}");
            assert_eq!(imported(&text).0, format!("limits:\n  a: {{ {expected} }}"), "{text}");
        }
    }

    /// Counts as nginx does: thousandths of requests in excess of the rate, and milliseconds.
    struct NginxZone {
        last: Option<u64>,
        excess: u64,
    }

    impl NginxZone {
        fn admits(&mut self, rate: u64, burst: u64, now: u64) -> bool {
            let excess =
                self.last.map_or(0, |last| (self.excess + 1_000).saturating_sub(rate * (now - last)));
            if excess > burst * 1_000 {
                return false;
            }
            (self.last, self.excess) = (Some(now), excess);
            true
        }
    }

    #[test]
    fn the_same_requests_are_admitted() {
        let mut random = Random::new(seed());
        for _ in 0..200 {
            let (rate, burst) = (random.between(1, 20), random.below(8));
            let limit = TokenBucket::new(burst + 1, rate, Duration::from_secs(1)).unwrap();
            let (mut zone, mut bucket) = (NginxZone { last: None, excess: 0 }, TokenBucketState::default());
            let mut now = 0;
            for _ in 0..100 {
                now += random.below(3_000 / rate);
                let decision = bucket.charge(&limit, 1, Timestamp::from_nanos(now * 1_000_000));
                assert_eq!(
                    zone.admits(rate, burst, now),
                    decision.allowed(),
                    "{rate}r/s burst={burst} at {now} ms"
                );
            }
        }
    }

    #[test]
    fn addresses_are_counted_one_by_one_as_nginx_counts_them() {
        for key in ["$binary_remote_addr", "$remote_addr", "\"$remote_addr\""] {
            let (limits, _) = imported(&format!("limit_req_zone {key} zone=a:1m rate=1r/s;"));
            assert!(
                limits.ends_with("{ burst: 1, count: 1, period: 1s, id: ip, ipv6_prefix: 128 }"),
                "{limits}"
            );
        }
    }

    #[test]
    fn comments_say_who_is_counted_and_where() {
        let text = "http {
            limit_req_zone $binary_remote_addr$host zone=a:1m rate=1r/s;
            limit_req zone=a;
            server {
                location ~ ^/(in|out)$ { limit_req zone=a; }
                server_name a.example b.example; # below what it names
            }
            server { limit_req zone=a; }
        }";
        let imported = import(text).unwrap();
        let expected = [
            "limit_req_zone at line 2: the id is $binary_remote_addr$host",
            "line 3: http: burst=0",
            "line 5: server a.example b.example, location ~ ^/(in|out)$: burst=0",
            "line 8: server: burst=0",
        ];
        assert_eq!(imported.limits[0].comments, expected);
    }

    #[test]
    fn nothing_is_dropped_in_silence() {
        let text = "include mime.types;
            limit_req_zone $binary_remote_addr zone=one:10m rate=1r/s;
            limit_req_zone $key zone=7:10m rate=1r/s sync;
            map $host $key { default x; }
            limit_req_status 429;
            limit_req_dry_run off;
            limit_req_dry_run on;
            limit_req zone=one burst=5;
            limit_req zone=one burst=7 delay=2;
            limit_req zone=elsewhere burst=9;
            limit_conn addr 10;
            limit_rate 1k;
            limit_req_novelty 1;
            limit_except GET { deny all; }";
        let (limits, left_out) = imported(text);
        let expected = "limits:
  one-burst5: { burst: 6, count: 1, period: 1s, id: ip, ipv6_prefix: 128 }
  one-burst7: { burst: 8, count: 1, period: 1s, id: ip, ipv6_prefix: 128 }
  limit-7: { burst: 1, count: 1, period: 1s }";
        assert_eq!(limits, expected);
        let expected = [
            "1: include mime.types: the file",
            "2: zone one is used with 2 different bursts",
            "2: the size of zones one and 7: max_buckets",
            "3: the name 7: the limit is called limit-7",
            "3: zone 7: nginx does not limit requests whose key is empty",
            "3: sync of zone 7",
            "4: map $host $key: the proxy computes the id of zone 7",
            "5: limit_req_status 429: the proxy",
            "7: limit_req_dry_run on: the limits of this file deny",
            "8: limit_req zone=one makes requests in excess of the rate wait",
            "9: limit_req zone=one makes those after the first 2",
            "10: limit_req zone=elsewhere: no limit_req_zone",
            "11: limit_conn addr 10: connections",
            "12: limit_rate 1k: bytes",
            "13: limit_req_novelty 1: it is not known",
        ];
        assert_eq!(left_out.len(), expected.len(), "{left_out:#?}");
        for (left_out, expected) in left_out.iter().zip(expected) {
            assert!(left_out.starts_with(expected), "{left_out}\n{expected}");
        }
    }

    #[test]
    fn every_map_that_computes_an_id_is_listed() {
        let (_, left_out) = imported(
            "map $host $site { default x; }
            map $site $key { default y; }
            map $host $keyring { default z; }
            limit_req_zone \"${key}\" zone=one:1m rate=1r/s;
            limit_req_zone $key$uri zone=two:1m rate=1r/s;
            map $host $tenant { default x; }
            map $uri $client { default anyone; /t \"${tenant}\"; }
            limit_req_zone $client zone=three:1m rate=1r/s;",
        );
        let maps: Vec<_> = left_out.iter().filter(|text| text.contains(": map ")).collect();
        let expected = [
            "1: map $host $site: the proxy computes the id of zone one, two",
            "2: map $site $key: the proxy computes the id of zone one, two",
            "6: map $host $tenant: the proxy computes the id of zone three",
            "7: map $uri $client: the proxy computes the id of zone three",
        ];
        assert_eq!(maps, expected);
    }

    #[test]
    fn nothing_is_lost_between_long_comments_of_lua() {
        for lua in
            ["--[[\n we don't }\n]]", "--[==[ ]] can't ]=] }\n]==]", "local t = [[ it's } ]]", "-- don't\n"]
        {
            let block = format!("access_by_lua_block {{ {lua} local s = t[i[1]] }}\n");
            let text = format!(
                "{block}limit_req_zone $a zone=one:1m rate=1r/s;\n{block}limit_req_zone $b zone=two:1m rate=1r/s;"
            );
            let names: Vec<_> = import(&text).unwrap().limits.into_iter().map(|limit| limit.name).collect();
            assert_eq!(names, ["one", "two"], "{lua}");
        }
    }

    #[test]
    fn a_limit_of_a_location_that_replaces_that_of_its_server_is_listed() {
        let text = "limit_req_zone $host zone=a:1m rate=1r/s;
            server {
                server_name one;
                limit_req zone=a;
                location /own { limit_req zone=a; limit_req zone=a; }
                location /inherited { location /inherited/own { limit_req zone=a; } }
            }
            server { location / { limit_req zone=a; } }";
        let replaced: Vec<_> =
            imported(text).1.into_iter().filter(|line| line.contains(" replaces that of line ")).collect();
        assert_eq!(replaced.len(), 2, "{replaced:?}");
        let own = "5: limit_req of server one, location /own replaces that of line 4, which nginx inherits";
        assert!(replaced[0].starts_with(own), "{replaced:?}");
        assert!(
            replaced[1].starts_with("6: limit_req of server one, location /inherited, location"),
            "{replaced:?}"
        );
        let in_http = "http { limit_req_zone $host zone=a:1m rate=1r/s; limit_req zone=a;\nserver { limit_req zone=a; } }";
        assert!(imported(in_http).1.iter().any(|line| line.starts_with("2: limit_req of server replaces")));
    }

    #[test]
    fn a_file_without_limits_is_an_error() {
        for text in ["", "events { } # nothing", "http { include sites/*; }"] {
            let errors = import(text).unwrap_err();
            assert!(errors[0].message.contains("there is nothing to convert"), "{errors:?}");
        }
    }

    #[test]
    fn a_misspelled_zone_is_an_error_that_says_what_was_read() {
        let text = "http {
            limit_req_zon $x zone=a:10m rate=5r/s;
            server { limit_req zone=a; }
        }";
        let errors = import(text).unwrap_err();
        let expected = [
            (1, "the file has no limit_req_zone"),
            (2, "not carried over: limit_req_zon $x zone=a:10m rate=5r/s: it is not known"),
            (3, "not carried over: limit_req zone=a: no limit_req_zone of this file defines it"),
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:?}");
        for (error, (line, message)) in errors.iter().zip(expected) {
            assert_eq!(error.at.line, line, "{errors:?}");
            assert!(error.message.starts_with(message), "{errors:?}");
        }
    }

    #[test]
    fn mistakes_are_shown_where_they_are() {
        for (text, line, column, message) in [
            ("a b", 1, 1, "directive \"a\" does not end with \";\""),
            ("http {\n  a;", 1, 6, "a \"}\" is missing"),
            ("a;\n}", 2, 1, "without a \"{\""),
            (";", 1, 1, "without a directive"),
            ("a 'b;", 1, 3, "this quote has no end"),
            ("limit_req_zone;", 1, 1, "needs a key"),
            ("limit_req_zone $a rate=1r/s;", 1, 1, "needs zone=NAME:SIZE"),
            ("limit_req_zone $a zone=:1m;", 1, 1, "needs zone=NAME:SIZE"),
            ("limit_req_zone $a zone=a:1m\n rate=1r/h;", 2, 2, "\"1r/h\" is not a rate"),
            ("limit_req_zone $a zone=a:1m rate=0r/s;", 1, 29, "\"0r/s\" is not a rate"),
            ("limit_req_zone $a zone=a:1m rate=+1r/s;", 1, 29, "is not a rate"),
            ("limit_req_zone $a zone=a:1m rate=9999999999r/s;", 1, 29, "nanosecond"),
            ("limit_req_zone $a zone=a:1m; limit_req_zone $b zone=a:1m;", 1, 30, "a second time"),
            ("limit_req_zone $a zone=a:1m size=1;", 1, 29, "unknown parameter \"size=1\""),
            ("limit_req burst=5;", 1, 1, "limit_req needs zone=NAME"),
            ("limit_req zone=a burst=-1;", 1, 18, "\"-1\" is not a whole number"),
            ("limit_req zone=a nodelai;", 1, 18, "unknown parameter"),
            ("limit_req_zone $a zone=a:1m; limit_req zone=a burst=18446744073709551615;", 1, 47, "too large"),
        ] {
            let errors = import(text).unwrap_err();
            assert_eq!((errors.len(), errors[0].at), (1, Position { line, column }), "{text}: {errors:?}");
            assert!(errors[0].message.contains(message), "{text}: {errors:?}");
        }
        let deep = import(&"a {".repeat(65)).unwrap_err();
        assert!(deep[0].message.contains("nested"), "{deep:?}");
    }

    #[test]
    fn words_are_read_as_nginx_reads_them() {
        let text = "limit_req_zone \"${host}x\" 'zone=a\\'b:1m' rate=1r/s;\n\
                    access_by_lua_block { local t = { '}' } -- }\n }\nlimit_req zone=a\\'b;";
        let imported = import(text).unwrap();
        assert_eq!((imported.limits.len(), imported.left_out.len()), (1, 3));
        assert_eq!(imported.limits[0].name, "a-b");
        assert_eq!(imported.limits[0].comments[0], "limit_req_zone at line 1: the id is ${host}x");
    }

    #[test]
    fn no_text_panics_and_what_is_read_is_valid() {
        const WORDS: [&str; 32] = [
            "limit_req_zone ",
            "limit_req ",
            "zone=a:1m ",
            "zone=b",
            "zone=true:",
            "zone=-.é ",
            "rate=1r/s ",
            "rate=7r/m",
            "$k ",
            "burst=3 ",
            "burst=99999999999999999999 ",
            "nodelay ",
            "delay=1 ",
            ";",
            "{",
            "}",
            "\n",
            "#",
            "'",
            "\"",
            "\\",
            "${",
            "server ",
            "server_name x ",
            "include \u{1b}[0m",
            "map ",
            "access_by_lua_block ",
            "--",
            "limit_conn ",
            "é",
            "=",
            " ",
        ];
        let mut random = Random::new(seed());
        for _ in 0..20_000 {
            let length = random.below(24);
            let text: String = (0..length).map(|_| random.pick(&WORDS)).collect();
            if let Ok(read) = import(&text) {
                let yaml = read.to_yaml("a\nfile");
                Config::parse(&yaml, "imported.yaml")
                    .unwrap_or_else(|errors| panic!("{text:?}\n{yaml}\n{errors}"));
            }
        }
    }
}
