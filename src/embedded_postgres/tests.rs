//! The clusters here are real. What must be killed, or run as another account, is this test binary again.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};

use super::account::{Account, is_root};
use super::home::{STATE_FOLDER, random};
use super::*;

/// Tells the helpers that they run for a test, and on which data directory (empty: a temporary cluster).
const HELPER: &str = "PAYONCE_TEST_EMBEDDED_POSTGRES";

/// Kills and cleanings take less than this, or something hangs.
const SOON: Duration = Duration::from_secs(20);

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!(
            "payonce-scratch-{:x}",
            u64::from_be_bytes(random().unwrap())
        ));
        fs::create_dir(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn number(postgres: &EmbeddedPostgres, sql: &'static str) -> i64 {
    let mut connection = PgConnection::connect(&postgres.url("postgres"))
        .await
        .unwrap();
    sqlx::query_scalar(sql)
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

async fn execute(postgres: &EmbeddedPostgres, sql: &'static str) {
    let mut connection = PgConnection::connect(&postgres.url("postgres"))
        .await
        .unwrap();
    sqlx::query(sql).execute(&mut connection).await.unwrap();
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < SOON, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn answers(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn helper(program: &Path, test: &str, data_dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.args([
        "--exact",
        &format!("embedded_postgres::tests::{test}"),
        "--ignored",
        "--nocapture",
    ]);
    command.env(HELPER, data_dir).current_dir("/");
    command
}

/// A process that starts a cluster, says so, and stays.
fn holder(data_dir: &Path) -> (Child, u16, PathBuf) {
    let mut command = helper(
        &std::env::current_exe().unwrap(),
        "holds_a_cluster",
        data_dir,
    );
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let line = lines
        .find_map(|line| Some(line.split_once("holding ")?.1.to_owned()))
        .unwrap();
    let (port, home) = line.split_once(' ').unwrap();
    (child, port.parse().unwrap(), PathBuf::from(home))
}

#[tokio::test]
#[ignore = "not a test: what the tests start and kill"]
async fn holds_a_cluster() {
    let Some(data_dir) = std::env::var_os(HELPER) else {
        return;
    };
    let options = if data_dir.is_empty() {
        Options::throw_away()
    } else {
        Options::kept_in(data_dir)
    };
    let postgres = EmbeddedPostgres::start(options).await.unwrap();
    execute(
        &postgres,
        "CREATE TABLE IF NOT EXISTS kept AS SELECT 7::BIGINT AS value",
    )
    .await;
    println!("holding {} {}", postgres.port(), postgres.home().display());
    std::future::pending::<()>().await;
}

#[tokio::test]
#[ignore = "not a test: what the tests run as another account"]
async fn starts_and_stops_a_cluster() {
    let Some(data_dir) = std::env::var_os(HELPER) else {
        return;
    };
    for options in [
        Options::throw_away(),
        Options::kept_in(&data_dir),
        Options::kept_in(&data_dir),
    ] {
        let postgres = EmbeddedPostgres::start(options).await.unwrap();
        assert_eq!(number(&postgres, "SELECT 1::BIGINT").await, 1);
        postgres.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_temporary_cluster_answers_makes_databases_and_leaves_nothing_behind() {
    let postgres = EmbeddedPostgres::start(Options::throw_away())
        .await
        .unwrap();
    postgres.ensure_database("template_a").await.unwrap();
    postgres.ensure_database("template_a").await.unwrap();
    let mut template = PgConnection::connect(&postgres.url("template_a"))
        .await
        .unwrap();
    sqlx::query("CREATE TABLE t ()")
        .execute(&mut template)
        .await
        .unwrap();
    let clones =
        ["copy_1", "copy_2", "copy_3"].map(|name| postgres.clone_database("template_a", name));
    let leave_soon = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        template.close().await.unwrap();
    };
    let (results, ()) = tokio::join!(futures_util::future::join_all(clones), leave_soon);
    results.into_iter().collect::<Result<Vec<()>, _>>().unwrap();
    let mut copy = PgConnection::connect(&postgres.url("copy_3"))
        .await
        .unwrap();
    sqlx::query("SELECT * FROM t")
        .execute(&mut copy)
        .await
        .unwrap();
    assert!(postgres.bin_dir().join("psql").is_file());
    let (home, port) = (postgres.home().to_owned(), postgres.port());
    postgres.stop().await.unwrap();
    assert!(!home.exists() && !answers(port));
}

#[tokio::test]
async fn a_dropped_cluster_goes_by_itself() {
    let postgres = EmbeddedPostgres::start(Options::throw_away())
        .await
        .unwrap();
    let home = postgres.home().to_owned();
    drop(postgres);
    wait_until("the folder is gone", || !home.exists()).await;
}

#[tokio::test]
async fn what_was_committed_survives_a_stop_and_a_crash() {
    let scratch = Scratch::new();
    let postgres = EmbeddedPostgres::start(Options::kept_in(scratch.0.join("data-dir")))
        .await
        .unwrap();
    execute(&postgres, "CREATE TABLE kept (value BIGINT)").await;
    execute(&postgres, "INSERT INTO kept VALUES (1)").await;
    let port = postgres.port();
    postgres.kill().await.unwrap();
    assert!(!answers(port));
    postgres.restart_after_kill().await.unwrap();
    assert_eq!(postgres.port(), port);
    execute(&postgres, "INSERT INTO kept VALUES (2)").await;
    postgres.stop().await.unwrap();
    let postgres = EmbeddedPostgres::start(Options::kept_in(scratch.0.join("data-dir")))
        .await
        .unwrap();
    assert_eq!(
        number(&postgres, "SELECT sum(value)::BIGINT FROM kept").await,
        3
    );
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_second_process_is_told_who_has_the_data_directory() {
    let scratch = Scratch::new();
    let (mut child, _, _) = holder(&scratch.0);
    let refused = EmbeddedPostgres::start(Options::kept_in(&scratch.0))
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains(&format!("in use by the payonce with pid {}", child.id())),
        "{refused}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let postgres = EmbeddedPostgres::start(Options::kept_in(&scratch.0))
        .await
        .unwrap();
    assert_eq!(number(&postgres, "SELECT value FROM kept").await, 7);
    postgres.stop().await.unwrap();
}

/// In initdb, in the start of Postgres, and about when it is ready.
#[tokio::test]
async fn a_process_killed_while_it_starts_leaves_a_data_directory_that_works() {
    for after_ms in [150, 450, 800, 1100] {
        let scratch = Scratch::new();
        let mut command = helper(
            &std::env::current_exe().unwrap(),
            "holds_a_cluster",
            &scratch.0,
        );
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let postgres = EmbeddedPostgres::start(Options::kept_in(&scratch.0))
            .await
            .unwrap();
        assert!(!postgres.home().join("data/new").exists());
        postgres.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_killed_process_takes_its_temporary_cluster_with_it() {
    let (mut child, port, home) = holder(Path::new(""));
    assert!(home.exists() && answers(port));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the folder is gone and nobody listens", || {
        !home.exists() && !answers(port)
    })
    .await;
}

#[tokio::test]
async fn a_postgres_whose_watcher_was_killed_too_is_stopped_by_the_next_start() {
    let scratch = Scratch::new();
    let (mut child, _, home) = holder(&scratch.0);
    let postmaster = fs::read_to_string(home.join("data/postmaster.pid")).unwrap();
    let parent = Command::new("ps")
        .args(["-o", "ppid=", "-p", postmaster.lines().next().unwrap()])
        .output()
        .unwrap();
    let watcher = String::from_utf8(parent.stdout).unwrap();
    assert!(
        Command::new("kill")
            .args(["-KILL", watcher.trim()])
            .status()
            .unwrap()
            .success()
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let postgres = EmbeddedPostgres::start(Options::kept_in(&scratch.0))
        .await
        .unwrap();
    assert_eq!(number(&postgres, "SELECT value FROM kept").await, 7);
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_pid_file_that_names_a_stranger_does_not_stop_a_start() {
    let scratch = Scratch::new();
    let postgres = EmbeddedPostgres::start(Options::kept_in(&scratch.0))
        .await
        .unwrap();
    let cluster = postgres.home().join("data");
    postgres.stop().await.unwrap();
    fs::write(
        cluster.join("postmaster.pid"),
        format!("{}\n", std::process::id()),
    )
    .unwrap();
    EmbeddedPostgres::start(Options::kept_in(&scratch.0))
        .await
        .unwrap()
        .stop()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_start_that_fails_says_what_postgres_said() {
    let settings = vec![("shared_buffers".to_owned(), "nonsense".to_owned())];
    let options = Options {
        settings,
        ..Options::throw_away()
    };
    let refused = EmbeddedPostgres::start(options).await.unwrap_err();
    assert!(refused.to_string().contains("shared_buffers"), "{refused}");
}

/// Only root has this problem: another user runs Postgres as themselves.
#[tokio::test]
async fn a_data_directory_closed_to_the_account_of_postgres_is_kept_elsewhere() {
    if !is_root().unwrap() {
        return;
    }
    let scratch = Scratch::new();
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o700)).unwrap();
    let data_dir = scratch.0.join("clone/.payonce");
    let postgres = EmbeddedPostgres::start(Options::kept_in(&data_dir))
        .await
        .unwrap();
    execute(&postgres, "CREATE TABLE kept AS SELECT 5::BIGINT AS value").await;
    let home = postgres.home().to_owned();
    postgres.stop().await.unwrap();
    assert!(home.starts_with(STATE_FOLDER), "{}", home.display());
    let postgres = EmbeddedPostgres::start(Options::kept_in(&data_dir))
        .await
        .unwrap();
    assert_eq!(postgres.home(), home);
    assert_eq!(number(&postgres, "SELECT value FROM kept").await, 5);
    postgres.stop().await.unwrap();

    // Deleted to begin anew: what is elsewhere goes with it.
    fs::remove_dir_all(&data_dir).unwrap();
    let postgres = EmbeddedPostgres::start(Options::kept_in(&data_dir))
        .await
        .unwrap();
    assert_eq!(postgres.home(), home);
    let kept = "SELECT count(*) FROM pg_tables WHERE tablename = 'kept'";
    assert_eq!(number(&postgres, kept).await, 0);
    postgres.stop().await.unwrap();

    fs::remove_dir_all(&home).unwrap();
    let lost = EmbeddedPostgres::start(Options::kept_in(&data_dir))
        .await
        .unwrap_err();
    assert!(matches!(lost, EmbeddedPostgresError::Lost { .. }), "{lost}");
    fs::remove_file(home.with_extension("lock")).unwrap();
    fs::remove_file(home.with_extension("password")).unwrap();
}

/// Run by root, as another user; when an ordinary user runs the tests, all of them show it.
#[tokio::test]
async fn an_ordinary_user_needs_nothing_of_root() {
    let Account {
        ids: Some((uid, gid)),
        ..
    } = Account::choose().unwrap()
    else {
        return;
    };
    let scratch = Scratch::new();
    std::os::unix::fs::chown(&scratch.0, Some(uid), Some(gid)).unwrap();
    let program = scratch.0.join("tests");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = helper(
        &program,
        "starts_and_stops_a_cluster",
        &scratch.0.join("data-dir"),
    );
    command.uid(uid).gid(gid);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{output:?}"
    );
}
