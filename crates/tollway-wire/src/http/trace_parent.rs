//! Reads `traceparent`, by which a client says which span of its trace a request belongs to (W3C Trace Context).
//!
//! ```text
//! traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//!              version, id of the trace, id of the client's span, flags: the lowest bit is "sampled"
//! ```

/// The length of the header in version 00.
const LEN: usize = 55;

/// The span of a client that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The id of the trace, which is not 0.
    pub trace_id: u128,
    /// The id of the client's span, which is not 0.
    pub span_id: u64,
    /// True if the client records the trace.
    pub sampled: bool,
}

impl TraceParent {
    /// Parses the value of a header. Returns `None` if it is invalid, and must be ignored.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.trim_ascii().split_at_checked(LEN)?;
        let mut fields = known.split(|byte| *byte == b'-');
        let (version, trace_id) = (fields.next()?, fields.next()?);
        let (span_id, flags) = (fields.next()?, fields.next()?);
        let lengths = [version, trace_id, span_id, flags].map(<[u8]>::len);
        // A version of the future may have more fields behind these.
        let is_whole = match version {
            b"00" => rest.is_empty(),
            b"ff" => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        if lengths != [2, 32, 16, 2] || fields.next().is_some() || !is_whole {
            return None;
        }
        hexadecimal(version)?;
        let (trace_id, span_id) = (hexadecimal(trace_id)?, u64::try_from(hexadecimal(span_id)?).ok()?);
        let sampled = hexadecimal(flags)? & 1 == 1;
        (trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, sampled })
    }
}

/// Returns the number that lowercase digits stand for. The standard allows no others.
fn hexadecimal(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_span_of_the_client_is_read() {
        let (trace_id, span_id) = (0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, 0xb7ad_6b71_6920_3331);
        let parent = |sampled| Some(TraceParent { trace_id, span_id, sampled });
        assert_eq!(TraceParent::parse(VALID.as_bytes()), parent(true));
        for (flags, sampled) in [("00", false), ("02", false), ("03", true), ("ff", true)] {
            let text = format!(" {}{flags} ", &VALID[..53]);
            assert_eq!(TraceParent::parse(text.as_bytes()), parent(sampled), "{flags}");
        }
        for of_the_future in [format!("01{}", &VALID[2..]), format!("fe{}-more-fields", &VALID[2..])] {
            assert_eq!(TraceParent::parse(of_the_future.as_bytes()), parent(true), "{of_the_future}");
        }
    }

    #[test]
    fn what_is_invalid_is_ignored() {
        for invalid in [
            "",
            "00",
            &VALID[..54],
            &format!("{VALID}0"),
            &format!("{VALID}-00"),
            &format!("ff{}", &VALID[2..]),
            &format!("01{}00", &VALID[2..]),
            &format!("0g{}", &VALID[2..]),
            &VALID.to_uppercase(),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
            "00-0af7651916cd43dd8448eb211c80319cb-7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c8031-c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceParent::parse(invalid.as_bytes()), None, "{invalid}");
        }
    }
}
