//! Opens connections, and checks that the node at the other end can execute calls.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, RedisConnectionInfo, RedisError, Value};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls;
use tollway_core::ErrorChain;

use super::jitter::random;
use super::slots::{self, SlotRange};
use super::tls::{Alert, Tls};
use crate::cause::Cause;
use crate::store::redis::{Address, PasswordFileError, RedisUrl, Topology};

/// The longest time until a connection is open. A node that takes longer is dialed again later.
const OPEN_MAX: Duration = Duration::from_secs(1);

/// The longest time for one of several nodes to answer, before the next one is asked.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(250);

/// The name of our connections in `CLIENT LIST`.
pub(super) const CLIENT_NAME: &str = "tollway";

/// The error of a connection that ended before it was of use.
const CLOSED: &str = "the connection was closed during the handshake";

/// Opens connections with the settings of a URL.
#[derive(Debug)]
pub(super) struct Dialer {
    url: RedisUrl,
    tls: Option<Tls>,
}

/// An open connection, and the future that reads and writes it while it is polled. It ends when the connection does.
pub(super) struct OpenConnection {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: ConnectionDriver,
    alert: Option<Alert>,
}

/// The error that kept a connection from being opened, or that ended it.
pub(super) type DialError = Box<dyn Error + Send + Sync>;

/// An error with the node, or the step, that it belongs to.
#[derive(Debug, Error)]
#[error("{at}")]
pub(super) struct ErrorAt {
    pub(super) at: String,
    pub(super) source: DialError,
}

/// A mistake in the configuration of the store, which no retry mends.
#[derive(Clone, Debug, Error)]
#[error("redis refuses the connection; {advice}")]
pub(crate) struct Misconfigured {
    advice: &'static str,
    source: Cause,
}

impl Misconfigured {
    /// Returns the mistake that an error comes from, if it comes from one.
    pub(super) fn of(error: &DialError) -> Option<Self> {
        let mut cause: Option<&(dyn Error + 'static)> = Some(&**error);
        while let Some(error) = cause {
            let advice = advice(error);
            if let Some(advice) = advice {
                return Some(Self { advice, source: Cause::new(format!("{}", ErrorChain(error))) });
            }
            cause = error.source();
        }
        None
    }
}

/// Returns what to do about an error that is a mistake in the configuration.
fn advice(error: &(dyn Error + 'static)) -> Option<&'static str> {
    const LOGIN: &str = "check the username, the password and the password_file of the store";
    const TLS: &str = "check tls_ca, tls_cert and tls_key, and that the certificate is for the host in the URL; if \
                       this Redis has no TLS, write redis://";
    if error.is::<PasswordFileError>() {
        return Some(LOGIN);
    }
    if let Some(error) = error.downcast_ref::<RedisError>() {
        return is_refused_login(error).then_some(LOGIN);
    }
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    inner.is_some_and(|inner| inner.is::<rustls::Error>()).then_some(TLS)
}

/// Returns true if an error is about the user or the password. Anything else that answers a login is an outage.
fn is_refused_login(error: &RedisError) -> bool {
    // A server without passwords has no code of its own for that.
    const DETAILS: [&str; 2] = ["without any password configured", "invalid username-password pair"];
    let detail = error.detail().unwrap_or_default();
    ["NOAUTH", "WRONGPASS", "NOPERM"].contains(&error.code().unwrap_or_default())
        || DETAILS.iter().any(|known| detail.contains(known))
}

type ConnectionDriver = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Dialer {
    /// Reads the certificates.
    pub(super) fn new(url: &RedisUrl) -> io::Result<Self> {
        let tls = url.tls.then(|| Tls::new(url)).transpose()?;
        Ok(Self { url: url.clone(), tls })
    }

    /// Opens a connection to a primary.
    pub(super) async fn open(&self, address: &Address) -> Result<OpenConnection, DialError> {
        within(OPEN_MAX, async {
            let mut opened = self.connect(address, &self.login()?).await?;
            let connection = opened.connection.clone();
            let fit = tokio::select! {
                fit = self.examine(connection) => fit,
                () = &mut opened.driver => Err(CLOSED.into()),
            };
            match fit {
                Ok(()) => Ok(opened),
                Err(error) => Err(opened.or_alert(error)),
            }
        })
        .await
    }

    /// Reads the slot map from one node after the other, until one answers: first from those that are connected, then
    /// from the others, each in a random order.
    pub(super) async fn read_slots(
        &self,
        mut nodes: Vec<(Address, Option<MultiplexedConnection>)>,
    ) -> Result<Vec<SlotRange>, DialError> {
        for rest in (1..nodes.len()).rev() {
            nodes.swap(rest, random() as usize % (rest + 1));
        }
        nodes.sort_by_key(|(_, connection)| connection.is_none());
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let mut failures = Failures::default();
        for (address, connection) in nodes {
            let asked = async {
                let answer = match connection {
                    Some(mut connection) => connection.send_packed_command(&question).await?,
                    None => self.ask_as(&self.login()?, &address, &question).await?,
                };
                Ok(slots::read(&answer, &address)?)
            };
            match within(ANSWER_MAX, asked).await {
                Ok(ranges) => return Ok(ranges),
                Err(error) => failures.add(&address, error),
            }
        }
        Err(failures.into_error())
    }

    /// Opens a connection, sends one command, and closes it. The node need not be a primary.
    async fn ask_as(
        &self,
        login: &RedisConnectionInfo,
        address: &Address,
        question: &redis::Cmd,
    ) -> Result<Value, DialError> {
        within(OPEN_MAX, async { self.connect(address, login).await?.ask(question).await }).await
    }

    /// Asks a Sentinel. Most have no password; one that has gets ours.
    pub(super) async fn ask_sentinel(
        &self,
        address: &Address,
        question: &redis::Cmd,
    ) -> Result<Value, DialError> {
        let anonymous = RedisConnectionInfo::default();
        match self.ask_as(&anonymous, address, question).await {
            Err(error) if error.to_string().contains("NOAUTH") => {
                self.ask_as(&self.login()?.set_db(0), address, question).await
            }
            answer => answer,
        }
    }

    /// Returns the user, the password and the database. The password may be in a file that is replaced.
    pub(super) fn login(&self) -> Result<RedisConnectionInfo, DialError> {
        let mut login = RedisConnectionInfo::default().set_db(self.url.database.into());
        if let Some(username) = &self.url.username {
            login = login.set_username(username);
        }
        if let Some(password) = self.url.secret()? {
            login = login.set_password(password.reveal());
        }
        Ok(login)
    }

    async fn connect(
        &self,
        address: &Address,
        login: &RedisConnectionInfo,
    ) -> Result<OpenConnection, DialError> {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        // A batch leaves in one write; nothing is gained by holding it back for more.
        stream.set_nodelay(true)?;
        match &self.tls {
            None => log_in(login, stream, None).await,
            Some(tls) => {
                let (stream, alert) = tls.wrap(&address.host, stream).await?;
                log_in(login, stream, Some(alert)).await
            }
        }
    }

    /// Checks that the node is a primary, in a Cluster that is healthy.
    async fn examine(&self, mut connection: MultiplexedConnection) -> Result<(), DialError> {
        let mut questions = Pipeline::new();
        questions.cmd("CLIENT").arg("SETNAME").arg(CLIENT_NAME).cmd("PING").cmd("ROLE");
        if let Topology::Cluster(_) = self.url.topology {
            questions.cmd("CLUSTER").arg("INFO");
        }
        // The time that this takes is not held to the deadline: this thread may be kept from running meanwhile.
        let answers = connection.send_packed_commands(&questions, 0, questions.len()).await?;
        let [_named, pong, role, rest @ ..] = answers.as_slice() else { return Err("no answer".into()) };
        if let Value::ServerError(error) = pong {
            return Err(RedisError::from(error.clone()).into());
        }
        // Without the permission to ask for the role, the first write finds out.
        if let Value::Array(role) = role
            && text(role.first()).is_some_and(|role| role != "master")
        {
            return Err("it is a replica, not a primary".into());
        }
        if text(rest.first()).is_some_and(|info| info.contains("cluster_state:fail")) {
            return Err("its cluster is down".into());
        }
        Ok(())
    }
}

pub(super) async fn within<T>(
    bound: Duration,
    work: impl Future<Output = Result<T, DialError>>,
) -> Result<T, DialError> {
    timeout(bound, work).await.unwrap_or_else(|_| Err(format!("no answer within {bound:?}").into()))
}

/// The errors of nodes that were asked one after the other.
#[derive(Debug, Default)]
pub(super) struct Failures {
    reasons: Vec<String>,
    mistake: Option<ErrorAt>,
}

impl Failures {
    pub(super) fn add(&mut self, address: &Address, source: DialError) {
        self.reasons.push(format!("{address}: {}", ErrorChain(&*source)));
        if self.mistake.is_none() && Misconfigured::of(&source).is_some() {
            self.mistake = Some(ErrorAt { at: address.to_string(), source });
        }
    }

    /// Returns the first error that is a mistake in the configuration, or else the reasons of all nodes.
    pub(super) fn into_error(self) -> DialError {
        self.mistake.map_or_else(|| self.reasons.join("; ").into(), Into::into)
    }
}

async fn log_in<S>(
    login: &RedisConnectionInfo,
    stream: S,
    alert: Option<Alert>,
) -> Result<OpenConnection, DialError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Calls have a deadline of their own.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    // The crate would log in itself, but it hides the reply: an outage would look like a wrong password.
    let anonymous = RedisConnectionInfo::default().set_skip_set_lib_name();
    let (connection, driver) = MultiplexedConnection::new_with_config(&anonymous, stream, config).await?;
    let mut opened = OpenConnection { connection, driver: Box::pin(driver), alert };
    if let Some(password) = login.password() {
        opened.ask(redis::cmd("AUTH").arg(login.username()).arg(password)).await?;
    }
    if login.db() != 0 {
        opened.ask(redis::cmd("SELECT").arg(login.db())).await?;
    }
    Ok(opened)
}

impl OpenConnection {
    /// Sends one command, and turns an error reply into an error.
    async fn ask(&mut self, question: &redis::Cmd) -> Result<Value, DialError> {
        let answer = tokio::select! {
            answer = self.connection.send_packed_command(question) => answer.map_err(Into::into),
            () = &mut self.driver => Err(CLOSED.into()),
        };
        match answer {
            Ok(Value::ServerError(error)) => Err(RedisError::from(error).into()),
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.or_alert(error)),
        }
    }

    /// Returns the alert that ended the connection, or else this error, which does not tell why.
    fn or_alert(&self, error: DialError) -> DialError {
        self.alert.as_ref().and_then(Alert::error).unwrap_or(error)
    }
}

/// Returns a value as text, if it is text.
fn text(value: Option<&Value>) -> Option<&str> {
    match value? {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refused_login_is_a_mistake() {
        for (text, is_mistake) in [
            ("WRONGPASS invalid username-password pair or user is disabled.", true),
            ("NOAUTH Authentication required.", true),
            ("NOPERM this user has no permissions to run the 'ping' command", true),
            ("ERR AUTH <password> called without any password configured for the default user.", true),
            ("ERR invalid username-password pair", true),
            ("ERR max number of clients reached", false),
            ("LOADING Redis is loading the dataset in memory", false),
            ("ERR unknown command 'AUTH'", false),
        ] {
            let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
            let Value::ServerError(error) = reply else { panic!("{reply:?}") };
            assert_eq!(Misconfigured::of(&RedisError::from(error).into()).is_some(), is_mistake, "{text}");
        }
    }
}
