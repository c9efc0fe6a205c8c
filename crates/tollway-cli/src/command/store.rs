//! Chooses the store: that of the flag or the configured one, with the password of the environment.
//!
//! `--store` is a text to clap, and is parsed here: clap prints a value that it rejects, with its password.

use std::env;

use anyhow::anyhow;
use tollway::config::{StoreUrl, StoreUrlError};
use tollway::store::redis::Secret;

/// The variable of the password, which is then in no file and in no list of processes.
const PASSWORD: &str = "TOLLWAY_STORE_PASSWORD";

/// Returns the store of the flag, or else the configured one. A password of the environment comes before that of a
/// file, but not before one that was given with the flag.
pub(super) fn chosen(flag: Option<&str>, configured: StoreUrl) -> anyhow::Result<StoreUrl> {
    let parse = |text: &str| text.parse().map_err(|error: StoreUrlError| anyhow!("--store {error}"));
    let store = flag.map_or(Ok(configured), parse)?;
    Ok(match (store, password()?) {
        (StoreUrl::Redis(url), Some(password)) if flag.is_none() || url.password.is_none() => {
            StoreUrl::Redis(url.with_password(password))
        }
        (store, _) => store,
    })
}

fn password() -> anyhow::Result<Option<Secret>> {
    let Some(password) = env::var_os(PASSWORD).filter(|password| !password.is_empty()) else {
        return Ok(None);
    };
    let password = password.into_string().map_err(|_| anyhow!("{PASSWORD} must be UTF-8"))?;
    Ok(Some(Secret::new(password)))
}
