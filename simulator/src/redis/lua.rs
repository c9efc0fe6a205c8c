//! Runs the scripts of the Redis store in Lua 5.1, the version that Redis has.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Value};

use super::database::Database;
use super::resp::Reply;

/// A Lua with the functions that Redis offers to scripts, over one database.
pub(super) struct LuaScripts {
    lua: Lua,
    database: Rc<RefCell<Database>>,
    functions: HashMap<Vec<u8>, Function>,
}

impl LuaScripts {
    pub(super) fn new(database: Rc<RefCell<Database>>) -> Self {
        let lua = Lua::new();
        let redis = lua.create_table().expect("Lua has memory");
        for (name, raises) in [("call", true), ("pcall", false)] {
            let own = Rc::clone(&database);
            let function = lua.create_function(move |lua, words: MultiValue| {
                let words: Vec<_> = words.iter().map(word).collect();
                let reply = own.borrow_mut().execute(&words);
                match reply {
                    Reply::Error(error) if raises => Err(mlua::Error::runtime(error)),
                    reply => to_lua(lua, &reply),
                }
            });
            redis.set(name, function.expect("Lua has memory")).expect("a table takes a function");
        }
        lua.globals().set("redis", redis).expect("a table takes a table");
        Self { lua, database, functions: HashMap::new() }
    }

    /// Returns the database that the scripts change.
    pub(super) fn database(&self) -> &Rc<RefCell<Database>> {
        &self.database
    }

    /// Returns true if a script was compiled before.
    pub(super) fn has(&self, sha: &[u8]) -> bool {
        self.functions.contains_key(sha)
    }

    /// Compiles a script.
    pub(super) fn load(&mut self, sha: Vec<u8>, source: &[u8]) {
        let function = self.lua.load(source).into_function().expect("a script that Lua compiles");
        self.functions.insert(sha, function);
    }

    /// Runs a script, and returns its reply.
    pub(super) fn run(&self, sha: &[u8], keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Reply {
        let list = |words: &[Vec<u8>]| {
            let words = words.iter().map(|word| self.lua.create_string(word).expect("Lua has memory"));
            self.lua.create_sequence_from(words).expect("Lua has memory")
        };
        let globals = self.lua.globals();
        globals.set("KEYS", list(keys)).expect("a table takes a table");
        globals.set("ARGV", list(arguments)).expect("a table takes a table");
        match self.functions[sha].call::<Value>(()) {
            Ok(value) => to_reply(&value),
            Err(error) => Reply::Error(format!("ERR {}", error.to_string().replace(['\r', '\n'], " "))),
        }
    }
}

/// Returns an argument of a command as Redis writes it.
fn word(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(number) => number.to_string().into_bytes(),
        Value::Number(number) => number.to_string().into_bytes(),
        other => panic!("a command has an argument {other:?}"),
    }
}

fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Nothing => Value::Boolean(false),
        Reply::Integer(number) => Value::Number(*number as f64),
        Reply::Bulk(text) => Value::String(lua.create_string(text)?),
        Reply::Status(text) => {
            let table = lua.create_table()?;
            table.set("ok", *text)?;
            Value::Table(table)
        }
        Reply::Error(text) => {
            let table = lua.create_table()?;
            table.set("err", text.as_str())?;
            Value::Table(table)
        }
        Reply::Array(replies) => {
            let table = lua.create_table()?;
            for (index, reply) in replies.iter().enumerate() {
                table.set(index + 1, to_lua(lua, reply)?)?;
            }
            Value::Table(table)
        }
    })
}

/// Returns what Redis sends for a value of a script: numbers lose their fraction, and a list ends at the first nil.
#[expect(clippy::cast_possible_truncation, reason = "as Redis does")]
fn to_reply(value: &Value) -> Reply {
    match value {
        Value::Boolean(true) => Reply::Integer(1),
        Value::Integer(number) => Reply::Integer(*number),
        Value::Number(number) => Reply::Integer(*number as i64),
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Table(table) => {
            let replies = (1..).map(|index| table.get::<Value>(index).unwrap_or(Value::Nil));
            Reply::Array(replies.take_while(|value| !value.is_nil()).map(|value| to_reply(&value)).collect())
        }
        _ => Reply::Nothing,
    }
}
