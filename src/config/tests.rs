use std::time::Duration;

use super::*;

fn load(environment: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    Config::load(&sources(environment))
}

fn sources(environment: &[(&str, &str)]) -> Sources {
    Sources {
        environment: environment
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        ..Sources::default()
    }
}

fn with_file(text: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let name = format!(
        "payonce-config-{}-{}.toml",
        std::process::id(),
        crate::random::Random::from_os().uuid()
    );
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).unwrap();
    let loaded = Config::load(&Sources {
        file: Some(path.clone()),
        ..sources(environment)
    });
    std::fs::remove_file(path).unwrap();
    loaded
}

/// The keys that are at fault once `environment` is in force.
fn faulty(environment: &[(&str, &str)]) -> Vec<String> {
    match load(environment).and_then(|config| config.check()) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.0.into_iter().map(|error| error.key).collect(),
    }
}

#[test]
fn the_defaults_are_sound() {
    let config = load(&[]).unwrap();
    assert_eq!(config.check(), Ok(()));
    assert_eq!(config.http.listen.port(), 8080);
    assert_eq!(config.idempotency.retention, Duration::from_hours(720));
    assert!(config.database.url.is_none());
    assert!(config.provider.stripe.secret_key.is_none());
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
    let file = "[worker]\npermits = 7\nlease = \"4m\"\n[http]\nlisten = \"[::1]:1\"\n";
    let config = with_file(file, &[("PAYONCE__WORKER__LEASE", "5m")]).unwrap();
    assert_eq!(config.worker.permits, 7);
    assert_eq!(config.worker.lease, Duration::from_mins(5));
    assert_eq!(config.http.listen.port(), 1);
    assert_eq!(config.worker.batch_items, 256);
    let overridden =
        sources(&[("PAYONCE__HTTP__LISTEN", "127.0.0.1:2")]).with("http.listen", "127.0.0.1:3");
    assert_eq!(Config::load(&overridden).unwrap().http.listen.port(), 3);
}

#[test]
fn the_admin_listener_can_be_moved_and_turned_off() {
    let listen = |value| {
        load(&[("PAYONCE__ADMIN__LISTEN", value)]).map(|config| {
            let shown = config.effective();
            (config.admin.listen, shown)
        })
    };
    let (moved, shown) = listen("[::1]:2").unwrap();
    assert_eq!(moved, Some("[::1]:2".parse().unwrap()));
    assert!(shown.contains("admin.listen = \"[::1]:2\""));
    for off in ["off", ""] {
        let (none, shown) = listen(off).unwrap();
        assert_eq!(none, None);
        assert!(shown.contains("admin.listen = \"\""), "{shown}");
    }
    let error = listen("9090").unwrap_err().to_string();
    assert!(error.contains("admin.listen"), "{error}");
}

#[test]
fn calls_are_bounded_by_what_stripe_takes_and_at_a_simulator_not_at_all() {
    let rate =
        |environment: &[(&str, &str)]| load(environment).unwrap().provider.calls_per_second();
    let live = ("PAYONCE__PROVIDER__MODE", "live");
    let simulator = (BASE, "http://127.0.0.1:12111");
    let key = "PAYONCE__PROVIDER__STRIPE__CALLS_PER_SECOND";
    assert_eq!(rate(&[]), Some(22));
    assert_eq!(rate(&[live]), Some(45));
    assert_eq!(rate(&[simulator]), None);
    assert_eq!(rate(&[(key, "0")]), None);
    assert_eq!(rate(&[(key, "80"), simulator]), Some(80));
    let file = "[provider.stripe]\ncalls_per_second = 7\n";
    let of_file = with_file(file, &[]).unwrap();
    assert_eq!(of_file.provider.calls_per_second(), Some(7));
    for (value, shown) in [("auto", "\"auto\""), ("7", "7")] {
        let effective = load(&[(key, value)]).unwrap().effective();
        assert!(effective.contains(&format!("calls_per_second = {shown}\n")));
    }
    for wrong in ["-1", "many", "1.5", "4294967296"] {
        let error = load(&[(key, wrong)]).unwrap_err().to_string();
        assert!(error.contains("calls_per_second"), "{error}");
    }
}

#[test]
fn our_own_variable_wins_over_the_common_one() {
    let common = ("DATABASE_URL", "postgres://a@common/x");
    let own = ("PAYONCE__DATABASE__URL", "postgres://a@own/x");
    for (environment, host) in [
        (vec![common], "common"),
        (vec![common, own], "own"),
        (vec![own, common], "own"),
    ] {
        let url = load(&environment).unwrap().database.url.unwrap();
        assert_eq!(url.options().get_host(), host);
    }
    let quiet = load(&[("RUST_LOG", "debug"), ("DATABASE_URL", "")]).unwrap();
    assert_eq!(quiet.log.filter, "debug");
    assert!(quiet.database.url.is_none());
}

#[test]
fn a_key_that_does_not_exist_is_refused_by_name_wherever_it_stands() {
    let errors = with_file(
        "colour = 1\n[worker]\nleese = \"4m\"\n[http.listen]\nport = 3\n",
        &[
            ("PAYONCE__HTPP__LISTEN", "x"),
            ("PAYONCE__WORKER__PERMIT", "1"),
            ("PAYONCE_PG_BIN", "/x"),
        ],
    )
    .unwrap_err();
    let keys: Vec<&str> = errors.0.iter().map(|error| error.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "colour",
            "http.listen.port",
            "worker.leese",
            "PAYONCE__HTPP__LISTEN",
            "PAYONCE__WORKER__PERMIT"
        ]
    );
    assert!(
        errors.to_string().contains("[worker] has action_expiry"),
        "{errors}"
    );
    assert!(errors.to_string().contains("provider.stripe"), "{errors}");
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_with_its_key() {
    for (name, value, key) in [
        ("PAYONCE__WORKER__LEASE", "30", "worker.lease"),
        ("PAYONCE__WORKER__LEASE", "soon", "worker.lease"),
        ("PAYONCE__WORKER__PERMITS", "-1", "worker.permits"),
        ("PAYONCE__HTTP__LISTEN", "8080", "http.listen"),
        ("PAYONCE__PROVIDER__MODE", "Live", "provider.mode"),
        (
            "PAYONCE__PROVIDER__STRIPE__TIMEOUT",
            "",
            "provider.stripe.timeout",
        ),
        ("PAYONCE__LOG__FORMAT", "xml", "log.format"),
        ("DATABASE_URL", "mysql://a:hunter2@b/c", "database.url"),
    ] {
        let errors = load(&[(name, value)]).unwrap_err();
        assert_eq!(errors.0.len(), 1, "{errors}");
        assert_eq!(errors.0[0].key, key, "{errors}");
        assert!(!errors.to_string().contains("hunter2"), "{errors}");
    }
    assert_eq!(
        faulty(&[
            ("PAYONCE__WORKER__LEASE", "1"),
            ("PAYONCE__HTTP__LISTEN", "x"),
            ("PAYONCE__X", "")
        ]),
        ["PAYONCE__X", "http.listen", "worker.lease"]
    );
}

#[test]
fn durations_are_read_and_shown_with_their_unit() {
    for (text, milliseconds) in [
        ("250ms", 250),
        ("30s", 30_000),
        ("5m", 300_000),
        ("24h", 86_400_000),
        ("720h", 2_592_000_000),
        ("90s", 90_000),
    ] {
        let config = load(&[("PAYONCE__WORKER__SLOW_CAP", text)]).unwrap();
        assert_eq!(config.worker.slow_cap, Duration::from_millis(milliseconds));
        assert!(
            config
                .effective()
                .contains(&format!("worker.slow_cap = {text:?}\n")),
            "{text}"
        );
    }
}

#[test]
fn what_is_shown_can_be_given_back_as_a_file() {
    let shown = load(&[]).unwrap().effective();
    assert_eq!(with_file(&shown, &[]).unwrap().effective(), shown);
}

/// Goal: no output of ours holds a secret, whatever is wrong with the configuration.
#[test]
fn secrets_are_shown_nowhere() {
    let config = load(&[
        (
            "DATABASE_URL",
            "postgres://payonce:hunter2@db:5433/books?password=hunter2",
        ),
        ("PAYONCE__PROVIDER__STRIPE__SECRET_KEY", "sk_live_hunter2"),
        (
            "PAYONCE__PROVIDER__STRIPE__WEBHOOK_SECRETS",
            "whsec_hunter2, whsec_hunter2b",
        ),
    ])
    .unwrap();
    assert_eq!(
        config.provider.stripe.webhook_secrets[1].reveal(),
        "whsec_hunter2b"
    );
    let errors = config.check().unwrap_err();
    let effective = config.effective();
    for shown in [format!("{config:?}"), effective.clone(), errors.to_string()] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert!(
        effective.contains("database.url = \"postgres://payonce@db:5433/books\""),
        "{effective}"
    );
    assert!(
        effective.contains("provider.stripe.webhook_secrets = [\"***\",\"***\"]"),
        "{effective}"
    );
    for broken in [
        "[provider.stripe]\nsecret_key = sk_hunter2\n",
        "[provider.stripe]\nsecret_key = \"sk_hunter2\n",
        "[provider.stripe]\nsecret_key = { a = \"hunter2\" }\n",
        "[provider.stripe]\nsecret_key = [\"hunter2\"]\n",
        "[provider.stripe]\nwebhook_secrets = { hunter = \"hunter2\" }\n",
    ] {
        let errors = with_file(broken, &[]).unwrap_err();
        assert!(!errors.to_string().contains("hunter2"), "{errors}");
    }
    let one = with_file(
        "[provider.stripe]\nwebhook_secrets = \"whsec_a,whsec_b\"\n",
        &[],
    )
    .unwrap();
    assert_eq!(one.provider.stripe.webhook_secrets.len(), 2);
}

const KEY: &str = "PAYONCE__PROVIDER__STRIPE__SECRET_KEY";
const BASE: &str = "PAYONCE__PROVIDER__STRIPE__BASE_URL";

/// Settings that break one relation, and the key that is told.
const RELATIONS: &[(&[(&str, &str)], &str)] = &[
    (&[("PAYONCE__WORKER__LEASE", "93s")], "worker.lease"),
    (
        &[
            ("PAYONCE__PROVIDER__STRIPE__TIMEOUT", "80s"),
            ("PAYONCE__RECONCILER__SWEEP_LEASE", "10m"),
        ],
        "worker.lease",
    ),
    (
        &[("PAYONCE__RECONCILER__SWEEP_LEASE", "90s")],
        "reconciler.sweep_lease",
    ),
    (
        &[("PAYONCE__RECONCILER__SWEEP_WINDOW", "59m")],
        "reconciler.sweep_interval",
    ),
    (
        &[("PAYONCE__RECONCILER__SWEEP_PAGES", "0")],
        "reconciler.sweep_pages",
    ),
    (
        &[("PAYONCE__WORKER__POLL_INTERVAL", "0s")],
        "worker.poll_interval",
    ),
    (&[("PAYONCE__WORKER__PERMITS", "0")], "worker.permits"),
    (
        &[("PAYONCE__WORKER__FAIR_AFTER", "0s")],
        "worker.fair_after",
    ),
    // 93 s of calls, and three turns among 128 jobs at ten calls a second.
    (
        &[("PAYONCE__PROVIDER__STRIPE__CALLS_PER_SECOND", "8")],
        "worker.permits",
    ),
    (
        &[("PAYONCE__WORKER__RETRY_CAP", "1ms")],
        "worker.retry_base",
    ),
    (&[("PAYONCE__WORKER__SLOW_CAP", "1s")], "worker.slow_base"),
    (
        &[("PAYONCE__WORKER__BREAKER_CAP", "1ms")],
        "worker.breaker_base",
    ),
    (
        &[("PAYONCE__WORKER__BREAKER_THRESHOLD", "0")],
        "worker.breaker_threshold",
    ),
    (
        &[("PAYONCE__RECONCILER__INTERVAL", "0s")],
        "reconciler.interval",
    ),
    (&[("PAYONCE__RECONCILER__BATCH", "0")], "reconciler.batch"),
    (
        &[("PAYONCE__INTAKE__BATCH_ITEMS", "4097")],
        "intake.batch_items",
    ),
    (&[("PAYONCE__INTAKE__BATCHERS", "0")], "intake.batchers"),
    (
        &[("PAYONCE__WORKER__REFUND_BATCHERS", "0")],
        "worker.refund_batchers",
    ),
    (
        &[("PAYONCE__DATABASE__POOL_SIZE", "0")],
        "database.pool_size",
    ),
    (
        &[("PAYONCE__DATABASE__STATEMENT_TIMEOUT", "5s")],
        "database.statement_timeout",
    ),
    (
        &[("PAYONCE__DATABASE__LOCK_TIMEOUT", "0s")],
        "database.lock_timeout",
    ),
    (
        &[("PAYONCE__HTTP__ACCEPTANCE_TIMEOUT", "4s")],
        "intake.give_up_after",
    ),
    (
        &[("PAYONCE__HTTP__REQUEST_TIMEOUT", "9s")],
        "http.acceptance_timeout",
    ),
    (
        &[("PAYONCE__HTTP__MAX_BODY_BYTES", "65537")],
        "http.max_body_bytes",
    ),
    (
        &[("PAYONCE__HTTP__REQUEST_TIMEOUT", "10s")],
        "http.request_timeout",
    ),
    (
        &[("PAYONCE__HTTP__MAX_REQUESTS", "2048")],
        "http.max_waiting",
    ),
    (
        &[("PAYONCE__HTTP__WAIT_POLL_INTERVAL", "0s")],
        "http.wait_poll_interval",
    ),
    (
        &[("PAYONCE__HTTP__IDLE_TIMEOUT", "10s")],
        "http.header_timeout",
    ),
    (
        &[("PAYONCE__HTTP__WRITE_TIMEOUT", "0s")],
        "http.write_timeout",
    ),
    (
        &[("PAYONCE__HTTP__MAX_HEAD_BYTES", "16383")],
        "http.max_head_bytes",
    ),
    (
        &[("PAYONCE__HTTP__MAX_HEAD_BYTES", "1048577")],
        "http.max_head_bytes",
    ),
    (&[("PAYONCE__HTTP__MAX_HEADERS", "0")], "http.max_headers"),
    (
        &[("PAYONCE__HTTP__REQUESTS_BURST", "1")],
        "http.requests_burst",
    ),
    (
        &[("PAYONCE__HTTP__UNKNOWN_KEYS_PER_SECOND", "0")],
        "http.unknown_keys_per_second",
    ),
    (
        &[("PAYONCE__INTAKE__QUEUE_BYTES", "524287")],
        "intake.queue_bytes",
    ),
    (
        &[("PAYONCE__HTTP__LISTEN", "127.0.0.1:9090")],
        "admin.listen",
    ),
    (
        &[("PAYONCE__ADMIN__BOOKS_INTERVAL", "0s")],
        "admin.books_interval",
    ),
    (
        &[("PAYONCE__IDEMPOTENCY__RETENTION", "23h")],
        "provider.stripe.key_window",
    ),
    (
        &[("PAYONCE__PROVIDER__STRIPE__KEY_WINDOW_MARGIN", "24h")],
        "provider.stripe.key_window_margin",
    ),
    (
        &[("PAYONCE__PROVIDER__STRIPE__KEY_WINDOW_MARGIN", "2m")],
        "worker.lease",
    ),
    (&[("PAYONCE__PROVIDER__ACCOUNT", "")], "provider.account"),
    (&[("PAYONCE__LOG__FILTER", "payonce=loud")], "log.filter"),
    (&[(KEY, "sk_live_x")], "provider.mode"),
    (
        &[(KEY, "rk_test_x"), ("PAYONCE__PROVIDER__MODE", "live")],
        "provider.mode",
    ),
    (&[(KEY, "pk_test_x")], "provider.stripe.secret_key"),
    (
        &[
            (BASE, "http://example.com"),
            ("PAYONCE__PROVIDER__MODE", "live"),
        ],
        "provider.stripe.base_url",
    ),
    (
        &[
            (BASE, "http://localhost.example.com"),
            ("PAYONCE__PROVIDER__MODE", "live"),
        ],
        "provider.stripe.base_url",
    ),
    (&[(BASE, "api.stripe.com")], "provider.stripe.base_url"),
];

#[test]
fn each_relation_is_checked() {
    for (environment, key) in RELATIONS {
        assert_eq!(faulty(environment), [*key], "{environment:?}");
    }
    for sound in [
        // The defaults, at Stripe.
        [(KEY, "sk_test_x"), ("PAYONCE__PROVIDER__MODE", "test")],
        [(KEY, "sk_live_x"), ("PAYONCE__PROVIDER__MODE", "live")],
        [(KEY, "rk_test_x"), ("PAYONCE__WORKER__LEASE", "156s")],
        [(BASE, "http://127.0.0.1:4242"), (KEY, "sk_test_x")],
        [(BASE, "http://[::1]:4242"), (KEY, "")],
        [
            ("PAYONCE__HTTP__REQUESTS_PER_SECOND", "50"),
            ("PAYONCE__HTTP__REQUESTS_BURST", "10"),
        ],
        [
            (BASE, "http://localhost:4242"),
            ("PAYONCE__PROVIDER__MODE", "live"),
        ],
    ] {
        assert!(faulty(&sound).is_empty(), "{sound:?}");
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let found = faulty(&[
        ("PAYONCE__WORKER__LEASE", "1s"),
        ("PAYONCE__HTTP__MAX_BODY_BYTES", "0"),
        ("PAYONCE__INTAKE__QUEUE", "0"),
    ]);
    assert_eq!(
        found,
        [
            "http.max_body_bytes",
            "intake.queue",
            "intake.batch_items",
            "worker.lease"
        ]
    );
}

#[test]
fn a_process_that_calls_the_provider_needs_its_key_and_each_needs_a_database() {
    let config = load(&[]).unwrap();
    let missing = |roles| -> Vec<String> {
        config
            .missing_for(roles)
            .into_iter()
            .map(|error| error.key)
            .collect()
    };
    let api = Roles {
        api: true,
        worker: false,
        reconciler: false,
    };
    assert_eq!(missing(api), ["database.url"]);
    assert_eq!(
        missing(Roles::ALL),
        ["database.url", "provider.stripe.secret_key"]
    );
    assert!(config.check_for(api).is_err());
}

#[test]
fn deliveries_must_fit_their_lease_and_be_kept_for_as_long_as_they_are_tried() {
    for (name, value, key) in [
        ("PAYONCE__WEBHOOKS__LEASE", "21s", "webhooks.lease"),
        ("PAYONCE__WEBHOOKS__TIMEOUT", "54s", "webhooks.lease"),
        ("PAYONCE__WEBHOOKS__RETENTION", "24h", "webhooks.retention"),
        (
            "PAYONCE__WEBHOOKS__CONNECT_TIMEOUT",
            "16s",
            "webhooks.connect_timeout",
        ),
        ("PAYONCE__WEBHOOKS__PERMITS", "0", "webhooks.permits"),
        (
            "PAYONCE__WEBHOOKS__ENDPOINT_PERMITS",
            "0",
            "webhooks.endpoint_permits",
        ),
        (
            "PAYONCE__WEBHOOKS__POLL_INTERVAL",
            "0s",
            "webhooks.poll_interval",
        ),
    ] {
        assert_eq!(faulty(&[(name, value)]), [key], "{name}={value}");
    }
    let config = load(&[("PAYONCE__WEBHOOKS__RETRY_DELAYS", "1s, 2h")]).unwrap();
    assert_eq!(
        config.webhooks.retry_delays,
        [Duration::from_secs(1), Duration::from_hours(2)]
    );
    assert!(load(&[("PAYONCE__WEBHOOKS__RETRY_DELAYS", "1s,2")]).is_err());
}

#[test]
fn the_loopback_interface_is_no_place_for_events_in_live_mode() {
    let allowed = ("PAYONCE__WEBHOOKS__ALLOW_LOOPBACK", "true");
    assert_eq!(faulty(&[allowed]), Vec::<String>::new());
    let live = ("PAYONCE__PROVIDER__MODE", "live");
    assert_eq!(faulty(&[allowed, live]), ["webhooks.allow_loopback"]);
}

const ACME: &str = "PAYONCE__PROVIDER__STRIPE__ACCOUNTS__ACME__SECRET_KEY";

#[test]
fn accounts_come_from_the_file_and_the_environment_and_the_default_one_is_the_first() {
    let file = "[provider.stripe.accounts.acme]\nsecret_key = \"sk_test_file\"\nwebhook_secrets = [\"whsec_a\"]\n";
    let config = with_file(
        file,
        &[
            (ACME, "sk_test_environment"),
            (
                "PAYONCE__PROVIDER__STRIPE__ACCOUNTS__1_b__SECRET_KEY",
                "sk_test_b",
            ),
            (
                "PAYONCE__PROVIDER__STRIPE__ACCOUNTS__1_B__WEBHOOK_SECRETS",
                "whsec_b, whsec_c",
            ),
            (KEY, "sk_test_default"),
        ],
    )
    .unwrap();
    config.check().unwrap();
    let accounts: Vec<(&str, &str, usize)> = config
        .provider
        .accounts()
        .map(|account| {
            (
                account.name,
                account.secret_key.unwrap().reveal(),
                account.webhook_secrets.len(),
            )
        })
        .collect();
    assert_eq!(
        accounts,
        [
            ("default", "sk_test_default", 0),
            ("1_b", "sk_test_b", 2),
            ("acme", "sk_test_environment", 1),
        ]
    );
    let effective = config.effective();
    for line in [
        "provider.stripe.secret_key = \"sk_test_…\"\n",
        "provider.stripe.accounts.acme.secret_key = \"sk_test_…ment\"\n",
        "provider.stripe.accounts.1_b.webhook_secrets = [\"***\",\"***\"]\n",
    ] {
        assert!(effective.contains(line), "{effective}");
    }
    assert!(
        !effective.contains("environ") && !effective.contains("sk_test_b"),
        "{effective}"
    );
}

/// An account without a key is missed, not overlooked.
#[test]
fn an_account_whose_section_is_empty_is_there_and_lacks_its_key() {
    let empty = with_file("[provider.stripe.accounts.us]\n", &[]).unwrap();
    assert!(empty.provider.has_account("us"));
    let missing = empty.missing_for(Roles::ALL);
    let key = "provider.stripe.accounts.us.secret_key";
    assert!(missing.iter().any(|error| error.key == key), "{missing:?}");
    let filled = with_file(
        "[provider.stripe.accounts.us]\n",
        &[(
            "PAYONCE__PROVIDER__STRIPE__ACCOUNTS__US__SECRET_KEY",
            "sk_test_us",
        )],
    );
    assert!(filled.unwrap().provider.accounts().any(|account| {
        account.name == "us" && account.secret_key.unwrap().reveal() == "sk_test_us"
    }));
    let misnamed = with_file("[provider.stripe.accounts.U-S]\n", &[]).unwrap_err();
    assert!(misnamed.to_string().contains("accounts.NAME"), "{misnamed}");
}

/// Goal: no two names for one account, no account of the other mode, none that a charge could wait for for ever.
#[test]
fn accounts_that_can_not_be_told_apart_or_used_are_refused_without_a_word_of_their_keys() {
    let section = "provider.stripe.accounts.acme.secret_key";
    for (environment, fault) in [
        (vec![(ACME, "sk_live_hunter2")], "provider.mode"),
        (vec![(ACME, "hunter2")], section),
        (
            vec![(ACME, "sk_test_hunter2"), (KEY, "sk_test_hunter2")],
            section,
        ),
        (
            vec![
                (ACME, "sk_test_hunter2"),
                ("PAYONCE__PROVIDER__ACCOUNT", "acme"),
            ],
            "provider.account",
        ),
        (
            vec![(ACME, "sk_test_hunter2"), ("PAYONCE__WORKER__PERMITS", "2")],
            "worker.permits",
        ),
        (
            vec![(
                "PAYONCE__PROVIDER__STRIPE__ACCOUNTS__ACME__WEBHOOK_SECRETS",
                "hunter2",
            )],
            "provider.stripe.accounts.acme.webhook_secrets",
        ),
    ] {
        let errors = load(&environment).unwrap().check().unwrap_err();
        let found: Vec<&str> = errors.0.iter().map(|error| error.key.as_str()).collect();
        assert!(found.contains(&fault), "{found:?}");
        assert!(!errors.to_string().contains("hunter2"), "{errors}");
    }
    let config = load(&[(
        "PAYONCE__PROVIDER__STRIPE__ACCOUNTS__ACME__WEBHOOK_SECRETS",
        "whsec_a",
    )])
    .unwrap();
    let missing: Vec<String> = config
        .missing_for(Roles::ALL)
        .into_iter()
        .map(|error| error.key)
        .collect();
    assert!(missing.contains(&section.to_owned()), "{missing:?}");
    for unknown in [
        "PAYONCE__PROVIDER__STRIPE__ACCOUNTS__ACME__TIMEOUT",
        "PAYONCE__PROVIDER__STRIPE__ACCOUNTS__A__B__SECRET_KEY",
        "PAYONCE__PROVIDER__STRIPE__ACCOUNTS__A-B__SECRET_KEY",
        "PAYONCE__PROVIDER__STRIPE__ACCOUNTS__ACME",
    ] {
        let errors = load(&[(unknown, "hunter2")]).unwrap_err();
        assert_eq!(errors.0[0].key, unknown);
        assert!(errors.to_string().contains("accounts.NAME"), "{errors}");
        assert!(!errors.to_string().contains("hunter2"), "{errors}");
    }
    for broken in [
        "[provider.stripe.accounts.Acme]\nsecret_key = \"hunter2\"\n",
        "[provider.stripe.accounts]\nacme = \"hunter2\"\n",
        "[provider.stripe.accounts.acme]\nsecret_key = [\"hunter2\"]\n",
    ] {
        let errors = with_file(broken, &[]).unwrap_err();
        assert!(!errors.to_string().contains("hunter2"), "{errors}");
    }
}
