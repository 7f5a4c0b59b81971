//! A PgBouncer of one test, in front of one database.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use sqlx::ConnectOptions;
use tokio::process::{Child, Command};

/// Ends with its test.
pub struct PgBouncer {
    child: Child,
    at: SocketAddr,
    url: String,
    upstream: String,
    folder: PathBuf,
    settings: String,
}

impl PgBouncer {
    /// Starts one with these lines in its settings. `None`, said on stderr, where there is none and none can be had; in
    /// CI that is a failure.
    pub async fn start(database_url: &str, settings: &str) -> Option<Self> {
        let program = program().await?;
        let (credentials, rest) = database_url
            .trim_start_matches("postgres://")
            .split_once('@')
            .unwrap();
        let (user, password) = credentials.split_once(':').unwrap();
        let (address, database) = rest.split_once('/').unwrap();
        let (host, port) = address.split_once(':').unwrap();
        let at = SocketAddr::from(([127, 0, 0, 1], super::free_port()));
        let folder = std::env::temp_dir().join(format!("payonce-pgbouncer-{}", at.port()));
        std::fs::create_dir_all(&folder).unwrap();
        let upstream = format!(
            "{database} = host={host} port={port} dbname={database} user={user} password={password}"
        );
        let mut command = Command::new(program);
        command
            .arg(folder.join("pgbouncer.ini"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        if is_root() {
            command.args(["-u", "nobody"]);
        }
        let url = format!("postgres://{user}@{at}/{database}");
        let mut this = Self {
            // A placeholder of the right kind: the program itself must find its settings.
            child: Command::new("true").spawn().unwrap(),
            at,
            url,
            upstream,
            folder,
            settings: String::new(),
        };
        this.write(settings);
        this.child = command.spawn().unwrap();
        let options = payonce::db::session::connect_options(&this.url.parse().unwrap());
        super::until("PgBouncer answers", async || options.connect().await.ok()).await;
        Some(this)
    }

    /// The database's address, through PgBouncer.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Changes its settings while it runs, as an administrator does.
    pub async fn reload(&mut self, settings: &str) {
        self.write(settings);
        let process = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").args(["-HUP", &process]).status();
        assert!(sent.await.unwrap().success());
    }

    fn write(&mut self, settings: &str) {
        settings.clone_into(&mut self.settings);
        let text = format!(
            "[databases]\n{}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = any\n{}\n",
            self.upstream,
            self.at.port(),
            self.settings
        );
        std::fs::write(self.folder.join("pgbouncer.ini"), text).unwrap();
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// The installed one, or the distribution's, unpacked under `target/`.
async fn program() -> Option<PathBuf> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/.ci/pgbouncer");
    let output = Command::new(script).stdin(Stdio::null()).output().await;
    let output = output.unwrap();
    if output.status.success() {
        let path = String::from_utf8(output.stdout).unwrap();
        return Some(PathBuf::from(path.trim()));
    }
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(std::env::var_os("CI").is_none(), "no PgBouncer: {why}");
    // Past the capture of a test's output: whoever runs it must know.
    let _ = writeln!(std::io::stderr(), "LEFT OUT, no PgBouncer: {why}");
    None
}
