//! Describes the messages to clients that ask for reflection, such as `grpcurl`.
//!
//! Only what the service reads and writes is described.

use super::protobuf::{put_message, put_number};

/// A message: its name, its fields, and the messages and enums inside of it.
struct Message {
    name: &'static str,
    fields: &'static [Field],
    messages: &'static [Message],
    enums: &'static [Enum],
}

/// A field: its name, its number and its type.
type Field = (&'static str, u64, Type);

/// An enum: its name, and the names of its values in the order of their numbers.
type Enum = (&'static str, &'static [&'static str]);

#[derive(Clone, Copy)]
enum Type {
    Int64,
    Uint64,
    Int32,
    Bool,
    Text,
    Uint32,
    Enum(&'static str),
    Message(&'static str),
    Repeated(&'static str),
}

struct ProtoFile {
    path: &'static str,
    package: &'static str,
    dependencies: &'static [&'static str],
    messages: &'static [Message],
    enums: &'static [Enum],
}

const DURATION: &str = "google/protobuf/duration.proto";
const WRAPPERS: &str = "google/protobuf/wrappers.proto";
const BASE: &str = "envoy/config/core/v3/base.proto";
const UNIT: &str = "envoy/type/v3/ratelimit_unit.proto";
const DESCRIPTOR: &str = "envoy/extensions/common/ratelimit/v3/ratelimit.proto";

const UNITS: &[&str] = &["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"];

const fn message(name: &'static str, fields: &'static [Field]) -> Message {
    Message { name, fields, messages: &[], enums: &[] }
}

const FILES: [ProtoFile; 6] = [
    ProtoFile {
        path: DURATION,
        package: "google.protobuf",
        dependencies: &[],
        messages: &[message("Duration", &[("seconds", 1, Type::Int64), ("nanos", 2, Type::Int32)])],
        enums: &[],
    },
    ProtoFile {
        path: WRAPPERS,
        package: "google.protobuf",
        dependencies: &[],
        messages: &[message("UInt64Value", &[("value", 1, Type::Uint64)])],
        enums: &[],
    },
    ProtoFile {
        path: BASE,
        package: "envoy.config.core.v3",
        dependencies: &[],
        messages: &[message("HeaderValue", &[("key", 1, Type::Text), ("value", 2, Type::Text)])],
        enums: &[],
    },
    ProtoFile {
        path: UNIT,
        package: "envoy.type.v3",
        dependencies: &[],
        messages: &[],
        enums: &[("RateLimitUnit", UNITS)],
    },
    ProtoFile {
        path: DESCRIPTOR,
        package: "envoy.extensions.common.ratelimit.v3",
        dependencies: &[WRAPPERS, UNIT],
        messages: &[Message {
            name: "RateLimitDescriptor",
            fields: &[
                (
                    "entries",
                    1,
                    Type::Repeated(".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry"),
                ),
                (
                    "limit",
                    2,
                    Type::Message(
                        ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride",
                    ),
                ),
                ("hits_addend", 3, Type::Message(".google.protobuf.UInt64Value")),
                ("is_negative_hits", 4, Type::Bool),
            ],
            messages: &[
                message("Entry", &[("key", 1, Type::Text), ("value", 2, Type::Text)]),
                message(
                    "RateLimitOverride",
                    &[
                        ("requests_per_unit", 1, Type::Uint32),
                        ("unit", 2, Type::Enum(".envoy.type.v3.RateLimitUnit")),
                    ],
                ),
            ],
            enums: &[],
        }],
        enums: &[],
    },
    ProtoFile {
        path: "envoy/service/ratelimit/v3/rls.proto",
        package: "envoy.service.ratelimit.v3",
        dependencies: &[DURATION, BASE, DESCRIPTOR],
        messages: &[
            message(
                "RateLimitRequest",
                &[
                    ("domain", 1, Type::Text),
                    (
                        "descriptors",
                        2,
                        Type::Repeated(".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor"),
                    ),
                    ("hits_addend", 3, Type::Uint32),
                ],
            ),
            Message {
                name: "RateLimitResponse",
                fields: &[
                    ("overall_code", 1, Type::Enum(".envoy.service.ratelimit.v3.RateLimitResponse.Code")),
                    (
                        "statuses",
                        2,
                        Type::Repeated(".envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus"),
                    ),
                    ("response_headers_to_add", 3, Type::Repeated(".envoy.config.core.v3.HeaderValue")),
                ],
                messages: &[
                    Message {
                        name: "RateLimit",
                        fields: &[
                            ("requests_per_unit", 1, Type::Uint32),
                            (
                                "unit",
                                2,
                                Type::Enum(".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit"),
                            ),
                            ("name", 3, Type::Text),
                        ],
                        messages: &[],
                        enums: &[("Unit", UNITS)],
                    },
                    message(
                        "DescriptorStatus",
                        &[
                            ("code", 1, Type::Enum(".envoy.service.ratelimit.v3.RateLimitResponse.Code")),
                            (
                                "current_limit",
                                2,
                                Type::Message(".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit"),
                            ),
                            ("limit_remaining", 3, Type::Uint32),
                            ("duration_until_reset", 4, Type::Message(".google.protobuf.Duration")),
                        ],
                    ),
                ],
                enums: &[("Code", &["UNKNOWN", "OK", "OVER_LIMIT"])],
            },
        ],
        enums: &[],
    },
];

/// Returns the descriptions of the messages as a `google.protobuf.FileDescriptorSet`.
pub fn file_descriptor_set() -> Vec<u8> {
    let mut out = Vec::new();
    for file in &FILES {
        put_message(&mut out, 1, |out| put_file(out, file));
    }
    out
}

fn put_file(out: &mut Vec<u8>, file: &ProtoFile) {
    put_text(out, 1, file.path);
    put_text(out, 2, file.package);
    file.dependencies.iter().for_each(|dependency| put_text(out, 3, dependency));
    file.messages.iter().for_each(|message| put_message(out, 4, |out| put_type(out, message)));
    file.enums.iter().for_each(|names| put_message(out, 5, |out| put_enum(out, names)));
    if super::SERVICE.starts_with(file.package) {
        put_message(out, 6, |out| {
            put_text(out, 1, "RateLimitService");
            put_message(out, 2, |out| {
                put_text(out, 1, "ShouldRateLimit");
                put_text(out, 2, ".envoy.service.ratelimit.v3.RateLimitRequest");
                put_text(out, 3, ".envoy.service.ratelimit.v3.RateLimitResponse");
            });
        });
    }
    put_text(out, 12, "proto3");
}

fn put_type(out: &mut Vec<u8>, message: &Message) {
    put_text(out, 1, message.name);
    message.fields.iter().for_each(|field| put_message(out, 2, |out| put_field(out, field)));
    message.messages.iter().for_each(|message| put_message(out, 3, |out| put_type(out, message)));
    message.enums.iter().for_each(|names| put_message(out, 4, |out| put_enum(out, names)));
}

fn put_field(out: &mut Vec<u8>, (name, number, kind): &Field) {
    let label = if matches!(kind, Type::Repeated(_)) { 3 } else { 1 };
    let (kind, type_name) = match kind {
        Type::Int64 => (3, None),
        Type::Uint64 => (4, None),
        Type::Int32 => (5, None),
        Type::Bool => (8, None),
        Type::Text => (9, None),
        Type::Uint32 => (13, None),
        Type::Enum(name) => (14, Some(name)),
        Type::Message(name) | Type::Repeated(name) => (11, Some(name)),
    };
    put_text(out, 1, name);
    put_number(out, 3, *number);
    put_number(out, 4, label);
    put_number(out, 5, kind);
    if let Some(type_name) = type_name {
        put_text(out, 6, type_name);
    }
}

fn put_enum(out: &mut Vec<u8>, (name, values): &Enum) {
    put_text(out, 1, name);
    for (number, value) in values.iter().enumerate() {
        put_message(out, 2, |out| {
            put_text(out, 1, value);
            put_number(out, 2, number as u64);
        });
    }
}

fn put_text(out: &mut Vec<u8>, field: u8, text: &str) {
    put_message(out, field, |out| out.extend_from_slice(text.as_bytes()));
}
