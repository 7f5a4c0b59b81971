//! Where values come from: the embedded defaults, under a file, under the environment, under what the caller insists on.
//!
//! What a source says about a key that does not exist is a fault, not ignored: a misspelt limit would not hold.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use config::{File, FileFormat, Map, Source, Value, ValueKind};
use serde::Deserialize;

use super::Config;
use super::error::{ConfigError, ConfigErrors};
use super::values::split;

const DEFAULTS: &str = include_str!("defaults.toml");
const PREFIX: &str = "PAYONCE__";

/// Variables that other programs know too; one of ours for the same key wins.
const ALIASES: [(&str, &str); 2] = [("DATABASE_URL", "database.url"), ("RUST_LOG", "log.filter")];

/// What is laid over the defaults.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    pub environment: Vec<(OsString, OsString)>,
    /// Stronger than the environment; for what `dev` and tests fix.
    pub overrides: Vec<(&'static str, String)>,
}

impl Sources {
    /// A file, and the environment of this process.
    pub fn of_process(file: Option<PathBuf>) -> Self {
        Self {
            file,
            environment: std::env::vars_os().collect(),
            overrides: Vec::new(),
        }
    }

    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.overrides.push((key, value.into()));
        self
    }
}

/// The section of the accounts besides the default one: a table of each, by its name.
const ACCOUNTS: &str = "provider.stripe.accounts.";
/// What each of them has, and whether it is a list.
const OF_ACCOUNT: [(&str, bool); 2] = [("secret_key", false), ("webhook_secrets", true)];

/// The keys that exist, and those of them that are lists.
struct Keys {
    all: BTreeSet<String>,
    lists: BTreeSet<String>,
}

pub(super) fn load(sources: &Sources) -> Result<Config, ConfigErrors> {
    let defaults = parse("the defaults", DEFAULTS).map_err(|error| ConfigErrors(vec![error]))?;
    let keys = Keys::of(&defaults);
    let mut faults = Vec::new();
    let mut values = flattened(defaults);
    match file(sources) {
        Ok(file) => values.extend(keys.known(flattened(file), &mut faults)),
        Err(fault) => faults.push(fault),
    }
    values.extend(environment(&keys, &sources.environment, &mut faults));
    for (key, value) in &sources.overrides {
        values.insert((*key).to_owned(), keys.value(key, value));
    }
    match deserialize(values, &mut faults) {
        Some(config) if faults.is_empty() => Ok(config),
        _ => Err(ConfigErrors(faults)),
    }
}

fn file(sources: &Sources) -> Result<Map<String, Value>, ConfigError> {
    let Some(path) = &sources.file else {
        return Ok(Map::new());
    };
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&name, &text),
        Err(error) => Err(ConfigError::new(
            name,
            format!("the file can't be read: {error}"),
            "name a readable file with --config",
        )),
    }
}

fn parse(name: &str, text: &str) -> Result<Map<String, Value>, ConfigError> {
    File::from_str(text, FileFormat::Toml)
        .collect()
        .map_err(|error| {
            // The parser quotes the line, which may hold a secret: only where and why is told.
            let error = error.to_string();
            let mut lines = error
                .lines()
                .filter(|line| !line.contains(" |") && !line.is_empty());
            let place = lines.next().unwrap_or("not TOML").to_owned();
            let problem = lines.fold(place, |told, line| format!("{told}: {line}"));
            ConfigError::new(name, problem, "")
        })
}

/// The variables that are meant for us, by key.
fn environment(
    keys: &Keys,
    variables: &[(OsString, OsString)],
    faults: &mut Vec<ConfigError>,
) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    for ours in [false, true] {
        for (name, value) in variables {
            let Some(name) = name.to_str() else { continue };
            let key = match name.strip_prefix(PREFIX) {
                Some(rest) if ours => rest.to_lowercase().replace("__", "."),
                None if !ours => match ALIASES.iter().find(|(alias, _)| *alias == name) {
                    Some((_, key)) => (*key).to_owned(),
                    None => continue,
                },
                Some(_) | None => continue,
            };
            if !keys.has(&key) {
                faults.push(keys.unknown(name, &key));
                continue;
            }
            match value.to_str() {
                // Set to nothing by a shell or a container file that has no value for it.
                Some("") if !ours => {}
                Some(text) => {
                    values.insert(key.clone(), keys.value(&key, text));
                }
                None => faults.push(ConfigError::new(name, "the value is not UTF-8", "")),
            }
        }
    }
    values
}

impl Keys {
    fn of(defaults: &Map<String, Value>) -> Self {
        let values = flattened(defaults.clone());
        let is_list = |value: &Value| matches!(value.kind, ValueKind::Array(_));
        Self {
            lists: values
                .iter()
                .filter(|(_, value)| is_list(value))
                .map(|(key, _)| key.clone())
                .collect(),
            all: values.into_keys().collect(),
        }
    }

    fn value(&self, key: &str, text: &str) -> Value {
        let is_list = self.lists.contains(key) || of_account(key).is_some_and(|(_, list)| list);
        let kind = if is_list {
            ValueKind::Array(split(text).map(|entry| Value::new(None, entry)).collect())
        } else {
            ValueKind::String(text.to_owned())
        };
        Value::new(None, kind)
    }

    fn has(&self, key: &str) -> bool {
        self.all.contains(key) || of_account(key).is_some()
    }

    fn known(
        &self,
        values: BTreeMap<String, Value>,
        faults: &mut Vec<ConfigError>,
    ) -> BTreeMap<String, Value> {
        let (known, unknown): (BTreeMap<_, _>, BTreeMap<_, _>) = values
            .into_iter()
            .partition(|(key, value)| self.has(key) || is_empty_account(key, value));
        faults.extend(unknown.keys().map(|key| self.unknown(key, key)));
        known
    }

    /// The fault of a key that does not exist, called by the `name` that its source has for it.
    fn unknown(&self, name: &str, key: &str) -> ConfigError {
        if key.starts_with(ACCOUNTS) {
            return ConfigError::new(
                name,
                "there is no such key",
                "[provider.stripe.accounts.NAME] has secret_key, webhook_secrets; a name is 1 to 40 of a-z, 0-9 and _",
            );
        }
        let section = key.rsplit_once('.').map_or("", |(section, _)| section);
        let siblings: Vec<&str> = self
            .all
            .iter()
            .filter_map(|known| known.strip_prefix(section)?.strip_prefix('.'))
            .filter(|rest| !rest.contains('.'))
            .collect();
        let mend = if section.is_empty() || siblings.is_empty() {
            let sections: BTreeSet<&str> = self
                .all
                .iter()
                .filter_map(|known| Some(known.rsplit_once('.')?.0))
                .collect();
            let sections: Vec<&str> = sections.into_iter().collect();
            format!(
                "a key is section and name; the sections are {}",
                sections.join(", ")
            )
        } else {
            format!("[{section}] has {}", siblings.join(", "))
        };
        ConfigError::new(name, "there is no such key", mend)
    }
}

/// The account that a key is of, and whether the key's value is a list. `None` if it is no key of an account's.
fn of_account(key: &str) -> Option<(&str, bool)> {
    let (account, name) = key.strip_prefix(ACCOUNTS)?.split_once('.')?;
    let well_named = (1..=40).contains(&account.len())
        && account
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    let (_, is_list) = OF_ACCOUNT.iter().find(|(known, _)| *known == name)?;
    well_named.then_some((account, *is_list))
}

/// Whether it is the section of an account in which nothing stands.
fn is_empty_account(key: &str, value: &Value) -> bool {
    // As well named as one that has a key.
    matches!(value.kind, ValueKind::Table(_)) && of_account(&format!("{key}.secret_key")).is_some()
}

/// Every value that is not a table, by its dotted key; and the sections of accounts in which nothing stands, so that they
/// are missed rather than overlooked.
fn flattened(table: Map<String, Value>) -> BTreeMap<String, Value> {
    fn walk(prefix: &str, table: Map<String, Value>, into: &mut BTreeMap<String, Value>) {
        for (name, value) in table {
            let key = if prefix.is_empty() {
                name
            } else {
                format!("{prefix}.{name}")
            };
            match value.kind {
                ValueKind::Table(table) if table.is_empty() && key.starts_with(ACCOUNTS) => {
                    let kind = ValueKind::Table(table);
                    into.insert(key, Value::new(None, kind));
                }
                ValueKind::Table(table) => walk(&key, table, into),
                _ => {
                    into.insert(key, value);
                }
            }
        }
    }
    let mut values = BTreeMap::new();
    walk("", table, &mut values);
    values
}

/// Reads each section by itself, so that a fault in one does not hide those in the others.
fn deserialize(values: BTreeMap<String, Value>, faults: &mut Vec<ConfigError>) -> Option<Config> {
    let mut builder = config::Config::builder();
    for (key, value) in values {
        builder = match builder.set_override(&key, value) {
            Ok(builder) => builder,
            Err(error) => {
                faults.push(ConfigError::new(key, error.to_string(), ""));
                return None;
            }
        };
    }
    let raw = match builder.build() {
        Ok(raw) => raw,
        Err(error) => {
            faults.push(ConfigError::new("the configuration", error.to_string(), ""));
            return None;
        }
    };
    let database = section(&raw, "database", faults);
    let http = section(&raw, "http", faults);
    let admin = section(&raw, "admin", faults);
    let intake = section(&raw, "intake", faults);
    let worker = section(&raw, "worker", faults);
    let reconciler = section(&raw, "reconciler", faults);
    let webhooks = section(&raw, "webhooks", faults);
    let idempotency = section(&raw, "idempotency", faults);
    let provider = section(&raw, "provider", faults);
    let log = section(&raw, "log", faults);
    Some(Config {
        database: database?,
        http: http?,
        admin: admin?,
        intake: intake?,
        worker: worker?,
        reconciler: reconciler?,
        webhooks: webhooks?,
        idempotency: idempotency?,
        provider: provider?,
        log: log?,
    })
}

fn section<T: for<'de> Deserialize<'de>>(
    raw: &config::Config,
    name: &str,
    faults: &mut Vec<ConfigError>,
) -> Option<T> {
    let table = raw
        .get_table(name)
        .map(|table| Value::new(None, ValueKind::Table(table)));
    match table.and_then(T::deserialize) {
        Ok(section) => Some(section),
        Err(error) => {
            faults.push(misread(name, error));
            None
        }
    }
}

fn misread(section: &str, error: config::ConfigError) -> ConfigError {
    let full = |key: Option<String>| match key {
        Some(key) => format!("{section}.{key}"),
        None => section.to_owned(),
    };
    match error {
        config::ConfigError::Type {
            unexpected,
            expected,
            key,
            ..
        } => ConfigError::new(
            full(key),
            format!("it is {unexpected}"),
            format!("it must be {expected}"),
        ),
        config::ConfigError::At { error, key, .. } => {
            ConfigError::new(full(key), error.to_string(), "")
        }
        other => ConfigError::new(section, other.to_string(), ""),
    }
}
