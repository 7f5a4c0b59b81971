use clap::CommandFactory;
use clap::error::ErrorKind;

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split(' '))
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn dev_has_the_published_defaults() {
    let Command::Dev(options) = parse("payonce dev").unwrap().command else {
        panic!("not dev");
    };
    assert_eq!(
        options,
        DevOptions {
            port: 8080,
            data_dir: ".payonce".into(),
            simulator_port: None,
            admin_port: None,
        }
    );
}

#[test]
fn serve_does_everything_or_what_it_is_told() {
    let roles = |line| match parse(line).unwrap().command {
        Command::Serve(serve) => serve.options().roles,
        _ => panic!("not serve"),
    };
    assert_eq!(roles("payonce serve"), crate::config::Roles::ALL);
    let some = roles("payonce serve --only api,reconciler --config x.toml");
    assert!(some.api && some.reconciler && !some.worker);
    let error = parse("payonce serve --only web").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidValue);
}

#[test]
fn the_published_commands_are_understood() {
    for line in [
        "payonce migrate --config x.toml",
        "payonce openapi",
        "payonce openapi --version 3.0",
        "payonce config check",
        "payonce merchants create acme",
        "payonce merchants list",
        "payonce api-keys create --merchant acme",
        "payonce api-keys create --merchant acme --scope read --mode live",
        "payonce api-keys revoke 67e55044-10b1-426f-9247-bb680e5fe0c8",
        "payonce api-keys list --merchant acme",
        "payonce simulator --host 0.0.0.0 --port 0 --state-dir x",
        "payonce healthcheck",
        "payonce charges show chg_03510a50e711533aba21e1dd9ddf20be --json",
        "payonce charges list",
        "payonce charges list --stage requires_action --status in_progress --merchant acme --reference r --json",
        "payonce charges list --parked --unclear --older-than 10m --limit 1000",
        "payonce charges retry chg_03510a50e711533aba21e1dd9ddf20be chg_03510a50e711533aba21e1dd9ddf20bf --reason x",
        "payonce charges retry --all-parked --reason x",
        "payonce charges resolve chg_03510a50e711533aba21e1dd9ddf20be --as failed --reason x",
        "payonce charges resolve chg_03510a50e711533aba21e1dd9ddf20be --as completed --reason x --yes",
        "payonce accounts list --json",
        "payonce charges list --account acme",
        "payonce refunds list --open --account acme --json",
        "payonce refunds show rfd_03510a50e711533aba21e1dd9ddf20be --json",
        "payonce discrepancies list --account acme",
        "payonce reconcile --since 2h --account acme",
        "payonce merchants disable acme",
        "payonce merchants enable acme --config x.toml",
        "payonce pause --reason x",
        "payonce pause --status --json",
        "payonce resume",
        "payonce idempotency-key derive charge order-42 -1",
        "payonce completions bash",
        "payonce man",
        "payonce man charges resolve",
    ] {
        assert!(parse(line).is_ok(), "{line}");
    }
}

#[test]
fn what_is_not_understood_is_refused_with_exit_code_2() {
    for line in [
        "payonce",
        "payonce sreve",
        "payonce charges show order-42",
        "payonce charges list --stage paid",
        "payonce charges list --older-than soon",
        "payonce charges list --limit 0",
        "payonce charges retry --reason x",
        "payonce charges retry --all-parked",
        "payonce charges retry --all-parked chg_03510a50e711533aba21e1dd9ddf20be --reason x",
        "payonce charges resolve chg_03510a50e711533aba21e1dd9ddf20be --reason x",
        "payonce charges resolve chg_03510a50e711533aba21e1dd9ddf20be --as paid --reason x",
        "payonce charges resolve chg_03510a50e711533aba21e1dd9ddf20be --as failed",
        "payonce pause",
        "payonce pause --status --reason x",
        "payonce pause --reason x --json",
        "payonce idempotency-key derive charge",
        "payonce completions cobol",
        "payonce openapi --version 2.0",
        "payonce api-keys create",
        "payonce api-keys revoke x",
        "payonce merchants create \t",
        "payonce dev --port 65536",
        "payonce simulator --host nowhere",
    ] {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
}
