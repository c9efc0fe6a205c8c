//! Opening a connection, and seeing whether the node at its other end can be asked.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, RedisConnectionInfo, Value};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::tls::Tls;
use crate::store::redis::{Address, RedisUrl, Topology};

/// How long all of it may take. A node that takes longer is asked again later.
const OPEN_MAX: Duration = Duration::from_secs(1);

/// What `CLIENT LIST` calls our connections.
pub(super) const CLIENT_NAME: &str = "tollway";

/// What every connection needs to be opened.
#[derive(Debug)]
pub(super) struct Dialer {
    url: RedisUrl,
    tls: Option<Tls>,
}

/// An open connection, and what reads and writes it while it is polled. It ends when the connection does.
pub(super) struct Line {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: Driver,
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

type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Dialer {
    /// Reads the certificates that are to be trusted, once.
    pub(super) fn new(url: &RedisUrl) -> io::Result<Self> {
        let tls = url.tls.then(|| Tls::new(url.tls_ca.as_deref())).transpose()?;
        Ok(Self { url: url.clone(), tls })
    }

    /// Opens a connection to a primary, or says why not.
    pub(super) async fn open(&self, address: &Address) -> Result<Line, DialError> {
        within_bounds(async {
            let mut line = self.connect(address, &self.login()?).await?;
            let connection = line.connection.clone();
            tokio::select! {
                fit = self.examine(connection) => fit?,
                () = &mut line.driver => return Err("the connection was closed during the handshake".into()),
            }
            Ok(line)
        })
        .await
    }

    /// Opens a connection, asks one thing, and closes it. The one asked need not be a primary.
    pub(super) async fn ask_once(
        &self,
        address: &Address,
        question: &redis::Cmd,
    ) -> Result<Value, DialError> {
        self.ask_as(&self.login()?, address, question).await
    }

    async fn ask_as(
        &self,
        login: &RedisConnectionInfo,
        address: &Address,
        question: &redis::Cmd,
    ) -> Result<Value, DialError> {
        within_bounds(async {
            let mut line = self.connect(address, login).await?;
            tokio::select! {
                answer = line.connection.send_packed_command(question) => said(answer),
                () = &mut line.driver => Err("the connection was closed during the handshake".into()),
            }
        })
        .await
    }

    /// Asks a Sentinel. Most want no password; one that does gets ours.
    pub(super) async fn ask_sentinel(
        &self,
        address: &Address,
        question: &redis::Cmd,
    ) -> Result<Value, DialError> {
        let nobody = RedisConnectionInfo::default();
        match self.ask_as(&nobody, address, question).await {
            Err(error) if error.to_string().contains("NOAUTH") => {
                self.ask_as(&self.login()?.set_db(0), address, question).await
            }
            answer => answer,
        }
    }

    /// Who we are. The password may be in a file that is replaced from time to time.
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

    async fn connect(&self, address: &Address, login: &RedisConnectionInfo) -> Result<Line, DialError> {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        // A batch leaves in one write; nothing is gained by holding it back for more.
        stream.set_nodelay(true)?;
        match &self.tls {
            None => log_in(login, stream).await,
            Some(tls) => log_in(login, tls.wrap(&address.host, stream).await?).await,
        }
    }

    /// Is it a primary that answers in time, of a Cluster that is well?
    async fn examine(&self, mut connection: MultiplexedConnection) -> Result<(), DialError> {
        let mut questions = Pipeline::new();
        questions.cmd("CLIENT").arg("SETNAME").arg(CLIENT_NAME).cmd("PING").cmd("ROLE");
        if let Topology::Cluster(_) = self.url.topology {
            questions.cmd("CLUSTER").arg("INFO");
        }
        let asked = Instant::now();
        let answers = connection.send_packed_commands(&questions, 0, questions.len()).await?;
        let took = asked.elapsed();
        let [_named, pong, role, rest @ ..] = answers.as_slice() else { return Err("no answer".into()) };
        if let Value::ServerError(error) = pong {
            return Err(error.to_string().into());
        }
        // Who may not ask for the role is believed: the first write will tell.
        if let Value::Array(role) = role
            && text(role.first()).is_some_and(|role| role != "master")
        {
            return Err("it is a replica, not a primary".into());
        }
        if text(rest.first()).is_some_and(|info| info.contains("cluster_state:fail")) {
            return Err("its cluster is down".into());
        }
        if took > self.url.deadline {
            let deadline = self.url.deadline;
            return Err(format!("it answered after {took:.1?}, but the deadline is {deadline:?}").into());
        }
        Ok(())
    }
}

/// Gives up on what takes too long.
async fn within_bounds<T>(work: impl Future<Output = Result<T, DialError>>) -> Result<T, DialError> {
    timeout(OPEN_MAX, work).await.unwrap_or_else(|_| Err(format!("no answer within {OPEN_MAX:?}").into()))
}

async fn log_in<S>(login: &RedisConnectionInfo, stream: S) -> Result<Line, DialError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Whoever waits has a deadline of its own.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let opened = MultiplexedConnection::new_with_config(login, stream, config).await;
    let (connection, driver) = opened?;
    Ok(Line { connection, driver: Box::pin(driver) })
}

/// An error reply is an error.
fn said(answer: redis::RedisResult<Value>) -> Result<Value, DialError> {
    match answer? {
        Value::ServerError(error) => Err(error.to_string().into()),
        answer => Ok(answer),
    }
}

/// A value as text, if it is some.
fn text(value: Option<&Value>) -> Option<&str> {
    match value? {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}
