//! A token file that is read again when it changes, and the token that a connection sent last.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use subtle::ConstantTimeEq;
use tollway::config::ContentWatch;
use tollway_core::ErrorChain;
use tracing::{error, info, warn};

use super::{Grant, TokenFileError, TokenList};
use crate::reload::Reloadable;

/// The warning about a file without any token.
pub(crate) const NO_TOKENS: &str = "the token file has no tokens, so every client is refused; add one with \"tollway token NAME --scope decide --append FILE\"";

/// The tokens of one file, as it is now.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    list: ArcSwap<TokenList>,
}

/// The token that a connection sent last, and what it allows.
pub(crate) struct KnownToken {
    token: Box<[u8]>,
    /// The generation of the list that it was found in.
    generation: u64,
    grant: Arc<Grant>,
}

/// Shows the name of the token, and never the token.
impl fmt::Debug for KnownToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownToken").field("name", &self.grant.name).finish_non_exhaustive()
    }
}

impl KnownToken {
    pub(crate) fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }
}

impl TokenFile {
    /// Reads a file. The second value reads it again when it changes.
    pub(crate) fn open(path: &Path) -> Result<(Arc<Self>, TokenReload), TokenFileError> {
        let mut watch = ContentWatch::default();
        let list = read(&mut watch, path, 0)?;
        let file = Arc::new(Self { path: path.to_owned(), list: ArcSwap::from_pointee(list) });
        Ok((Arc::clone(&file), TokenReload { file, watch }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what a token allows. `known` is the token that the connection sent last; the same token is not looked
    /// for again, until the file changes.
    #[inline]
    pub(crate) fn grant<'k>(
        &self,
        token: &[u8],
        known: &'k mut Option<Arc<KnownToken>>,
    ) -> Option<&'k Arc<Grant>> {
        let list = self.list.load();
        let is_known = known
            .as_ref()
            .is_some_and(|known| known.generation == list.generation && bool::from(known.token.ct_eq(token)));
        if !is_known {
            *known = look_up(&list, token);
        }
        known.as_ref().map(|known| &known.grant)
    }

    /// Looks for the known token again if the file has changed. It is forgotten if it is not there any more.
    #[inline]
    pub(crate) fn renew(&self, known: &mut Option<Arc<KnownToken>>) {
        let list = self.list.load();
        if let Some(token) = known.take_if(|known| known.generation != list.generation) {
            *known = look_up(&list, &token.token);
        }
    }

    /// Returns the number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.list.load().len()
    }
}

fn look_up(list: &TokenList, token: &[u8]) -> Option<Arc<KnownToken>> {
    let grant = Arc::clone(list.find(token)?);
    Some(Arc::new(KnownToken { token: token.into(), generation: list.generation, grant }))
}

fn read(watch: &mut ContentWatch, path: &Path, generation: u64) -> Result<TokenList, TokenFileError> {
    watch.clear();
    let read = watch.read(path);
    let bytes = read.map_err(|source| TokenFileError::Unreadable { path: path.to_owned(), source })?;
    let list = TokenList::parse(&bytes, path, generation)?;
    if list.len() == 0 {
        warn!(path = %path.display(), "{NO_TOKENS}");
    }
    Ok(list)
}

/// Reads a token file again when it changes.
#[derive(Debug)]
pub(crate) struct TokenReload {
    file: Arc<TokenFile>,
    watch: ContentWatch,
}

impl Reloadable for TokenReload {
    fn path(&self) -> &Path {
        &self.file.path
    }

    fn changed(&mut self) -> bool {
        self.watch.changed()
    }

    fn reload(&mut self) -> bool {
        let Self { file, watch } = self;
        let generation = file.list.load().generation + 1;
        let path = file.path.display();
        match read(watch, &file.path, generation) {
            Ok(list) => {
                let tokens = list.len();
                file.list.store(Arc::new(list));
                // Whoever waits for this line must not be answered under the old list.
                info!(%path, tokens, "tokens reloaded");
                true
            }
            Err(error) => {
                error!(%path, "tokens not reloaded; the old ones stay in force:\n{}", ErrorChain(&error));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::list::digest_text;
    use super::*;
    use crate::tokens::Scope;

    fn write(path: &Path, lines: &[(&str, &str, &str)]) {
        let line = |(name, token, scopes): &(&str, &str, &str)| {
            format!("{name} {} {scopes}\n", digest_text(token.as_bytes()))
        };
        fs::write(path, lines.iter().map(line).collect::<String>()).unwrap();
    }

    #[test]
    fn a_new_file_counts_for_connections_that_know_their_token() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.txt");
        write(&path, &[("web", "tw_1", "decide"), ("ops", "tw_2", "admin")]);
        let (file, mut reload) = TokenFile::open(&path).unwrap();
        let (mut http, mut resp) = (None, None);
        assert!(file.grant(b"tw_1", &mut http).unwrap().includes(Scope::Decide));
        assert!(file.grant(b"tw_1", &mut resp).is_some());
        assert_eq!(format!("{:?}", http.as_ref().unwrap()), "KnownToken { name: \"web\", .. }");
        assert!(
            file.grant(b"tw_3", &mut http).is_none() && http.is_none(),
            "another token is not the known one"
        );
        assert!(file.grant(b"tw_1", &mut http).is_some());

        write(&path, &[("web", "tw_1", "read"), ("ops", "tw_2", "admin")]);
        assert!(reload.changed() && reload.reload());
        file.renew(&mut resp);
        for known in [&mut http, &mut resp] {
            let grant = file.grant(b"tw_1", known).unwrap();
            assert!(grant.includes(Scope::Read) && !grant.includes(Scope::Decide));
        }
        write(&path, &[("ops", "tw_2", "admin")]);
        assert!(reload.changed() && reload.reload());
        file.renew(&mut resp);
        assert!(resp.is_none() && file.grant(b"tw_1", &mut http).is_none());
    }

    #[test]
    fn a_bad_file_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.txt");
        write(&path, &[("web", "tw_1", "decide")]);
        let (file, mut reload) = TokenFile::open(&path).unwrap();
        fs::write(&path, "web tw_1 decide").unwrap();
        assert!(reload.changed() && !reload.reload());
        assert!(file.grant(b"tw_1", &mut None).is_some());
        fs::remove_file(&path).unwrap();
        assert!(!reload.reload());
        assert!(file.grant(b"tw_1", &mut None).is_some());
        let error = TokenFile::open(&path).unwrap_err();
        assert!(
            error.to_string().starts_with("the token file ")
                && error.to_string().ends_with(" cannot be read")
        );
    }
}
