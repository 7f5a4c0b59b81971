//! Logs: to stderr, for people on a terminal and as JSON for machines elsewhere.
//!
//! A line can be read alone and has its facts as fields. An error is what someone must act on, with a stable `code`.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::config::{Log, LogFormat};

/// What libraries say at these levels is for their authors. A filter that names one of them has its way.
const QUIET: &str = "sqlx=warn,hyper=warn,hyper_util=warn,reqwest=warn,rustls=warn,h2=warn";

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("log.filter can't be read")]
    Filter(#[from] ParseError),
    #[error("logging was set up already")]
    Twice(#[source] tracing_subscriber::util::TryInitError),
}

/// Once a process, before anything is logged.
pub fn init(log: &Log) -> Result<(), TelemetryError> {
    let format = fmt()
        .with_env_filter(filter(&log.filter)?)
        .with_writer(io::stderr)
        // Told on stderr, which is what can't be written to then; that would panic in whoever logs.
        .log_internal_errors(false)
        .with_span_events(FmtSpan::NONE);
    let terminal = io::stderr().is_terminal();
    let set = match log.format {
        LogFormat::Json => json(format),
        LogFormat::Auto if !terminal => json(format),
        LogFormat::Auto | LogFormat::Pretty => format.with_ansi(terminal).finish().try_init(),
    };
    set.map_err(TelemetryError::Twice)
}

fn json<W>(
    format: tracing_subscriber::fmt::SubscriberBuilder<
        fmt::format::DefaultFields,
        fmt::format::Format,
        EnvFilter,
        W,
    >,
) -> Result<(), tracing_subscriber::util::TryInitError>
where
    W: for<'a> fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    format.json().flatten_event(true).finish().try_init()
}

fn filter(asked: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(format!("{QUIET},{asked}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_quiet_unless_a_filter_names_them() {
        let shown = |asked: &str| filter(asked).unwrap().to_string();
        assert!(shown("debug").contains("sqlx=warn"));
        assert!(shown("debug").contains("debug"));
        let named = shown("info,sqlx=trace");
        assert!(named.contains("sqlx=trace") && !named.contains("sqlx=warn"));
        assert!(filter("payonce=loud").is_err());
    }
}
