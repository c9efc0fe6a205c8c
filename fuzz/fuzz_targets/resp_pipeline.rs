//! Checks that the short way of a RESP command, for the numbers of the one before it, reads what the parser reads, in
//! pipelines that arrive in pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway_wire::resp::{
    Decoded, KEY_MAX, RespCommand, ThrottleRequest, ThrottleTemplate, Words, decode, encode_command,
};

const NAMES: [&[u8]; 6] = [b"CL.THROTTLE", b"THROTTLE", b"cl.throttle", b"Throttle", b"PING", b"TOLL"];
const NUMBERS: [&[u8]; 12] =
    [b"1", b"15", b"30", b"60", b"0", b"-1", b"", b"007", b"9223372036854775807", b"x", b"1\r\n", b"2"];
const COMMANDS_MAX: usize = 16;
const PIECES_MAX: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let mut input = bytes.iter().copied();
    let mut cuts = Vec::new();
    for _ in 0..input.next().unwrap_or(0) as usize % PIECES_MAX {
        cuts.push(usize::from(u16::from_le_bytes([input.next().unwrap_or(0), input.next().unwrap_or(0)])));
    }
    let pipeline = pipeline(&mut input);
    cuts.iter_mut().for_each(|cut| *cut %= pipeline.len() + 1);
    cuts.push(pipeline.len());
    cuts.sort_unstable();
    assert_eq!(requests(&pipeline, &cuts, true), requests(&pipeline, &[pipeline.len()], false));
});

/// Returns commands that differ in a few places: most have the numbers of the one before them, as those of a client do.
fn pipeline(input: &mut impl Iterator<Item = u8>) -> Vec<u8> {
    let (mut pipeline, mut numbers, mut name) = (Vec::new(), [0, 1, 2, 3].map(|at| NUMBERS[at]), NAMES[0]);
    let mut has_quantity = false;
    for _ in 0..COMMANDS_MAX {
        let Some(what) = input.next() else { break };
        if what & 1 == 1 {
            name = NAMES[usize::from(input.next().unwrap_or(0)) % NAMES.len()];
        }
        if what & 2 == 2 {
            let change = usize::from(input.next().unwrap_or(0));
            numbers[change % 4] = NUMBERS[change / 4 % NUMBERS.len()];
        }
        has_quantity ^= what & 4 == 4;
        let key_len = match input.next().unwrap_or(0) {
            255 => KEY_MAX + 1,
            254 => KEY_MAX,
            short => usize::from(short % 32),
        };
        let key: Vec<u8> = (0..key_len).map(|_| input.next().unwrap_or(b'k')).collect();
        let words = [name, &key, numbers[0], numbers[1], numbers[2], numbers[3]];
        let start = pipeline.len();
        encode_command(&words[..if has_quantity { 6 } else { 5 }], &mut pipeline);
        if what & 0x38 == 0x38 {
            // One byte differs from what a client sends.
            let at = start + usize::from(input.next().unwrap_or(0)) % (pipeline.len() - start);
            pipeline[at] = input.next().unwrap_or(0);
        }
    }
    pipeline
}

/// Returns the throttle commands of a pipeline and their ends, and where an error ends them. With `short`, a command is
/// first read by the template of the one before it, as the gate does.
fn requests<'a>(
    pipeline: &'a [u8],
    ends: &[usize],
    short: bool,
) -> (Vec<(ThrottleRequest<'a>, usize)>, usize) {
    let (mut found, mut start, mut template) = (Vec::new(), 0, None::<ThrottleTemplate>);
    for end in ends {
        loop {
            let inbox = &pipeline[start..(*end).max(start)];
            if short
                && let Some(template) = &template
                && let Some((key, len)) = template.parse(inbox)
            {
                start += len;
                found.push((template.request().with_key(key), start));
                continue;
            }
            let mut words = Words::new();
            match decode(inbox, &mut words) {
                Ok(Some((decoded, len))) => {
                    if decoded == Decoded::Command
                        && let Ok(RespCommand::Throttle(request)) = RespCommand::parse(&words)
                    {
                        found.push((request, start + len));
                        template = ThrottleTemplate::new(&inbox[..len], &request).or(template);
                    }
                    start += len;
                }
                Ok(None) => break,
                Err(_) => return (found, start),
            }
        }
    }
    (found, start)
}
