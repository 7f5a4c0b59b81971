//! Where commands write. A reader that closes the pipe early (`| head`) is no failure.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use time::OffsetDateTime;

use crate::clock;

/// What was asked for: to stdout, a line break at its end.
pub(super) fn data(text: &str) -> anyhow::Result<()> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let mut stdout = io::stdout().lock();
    match write!(stdout, "{text}{end}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What a person should know besides: to stderr.
pub(super) fn message(text: impl fmt::Display) {
    // Nobody is there to be told that nobody can be told.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// What went wrong, why, and what to do.
pub(super) fn failure(error: &anyhow::Error) {
    message(format_args!("error: {}", causes(error)));
    if let Some(hinted) = error.downcast_ref::<Hinted>() {
        message(format_args!("hint: {}", hinted.hint));
    }
}

/// The error and its causes. Some libraries repeat the cause in their own text: it is told once.
fn causes(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if told.is_empty() {
            told = cause;
        } else if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

/// An error, or the context of one, with what to do about it.
#[derive(Debug)]
pub(super) struct Hinted {
    problem: String,
    hint: String,
}

impl Hinted {
    pub(super) fn new(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            hint: hint.into(),
        }
    }
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Hinted {}

pub(super) fn time(at: OffsetDateTime) -> String {
    clock::shown(at).to_string()
}

/// `1 day 2h`, `30 days`, `5s`.
pub(super) fn span(duration: Duration) -> String {
    humantime::format_duration(duration)
        .to_string()
        .split(' ')
        .map(|part| {
            // Words stand apart from their number, units do not.
            match part.find(|character: char| !character.is_ascii_digit()) {
                Some(at) if part.len() - at > 2 => format!("{} {}", &part[..at], &part[at..]),
                Some(_) | None => part.to_owned(),
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// `1 charge`, `2 charges`: of things whose plural has an s.
pub(super) fn counted(count: i64, thing: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{s}")
}

/// Columns as wide as their widest cell, the last one as it is.
pub(super) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .chain([head[column].len()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |cells: &[String; N]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let head = line(&head.map(str::to_uppercase));
    rows.iter()
        .map(line)
        .fold(head, |table, line| table + &line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let rows = [
            ["a".to_owned(), "long".to_owned()],
            ["bbbb".to_owned(), String::new()],
        ];
        assert_eq!(
            table(["id", "name"], &rows),
            "ID    NAME\na     long\nbbbb\n"
        );
    }

    #[test]
    fn times_are_as_long_as_one_another_and_words_are_told_in_their_number() {
        let at = time::macros::datetime!(2026-11-30 13:33:57.5 +1);
        assert_eq!(time(at), "2026-11-30T12:33:57.500000Z");
        assert_eq!(span(Duration::from_hours(24)), "1 day");
        assert_eq!(span(Duration::from_hours(50)), "2 days 2h");
        assert_eq!(span(Duration::from_millis(120)), "120ms");
        assert_eq!(counted(1, "object"), "1 object");
        assert_eq!(counted(0, "object"), "0 objects");
    }

    #[test]
    fn a_hint_is_found_on_an_error_and_on_its_context() {
        let plain = anyhow::Error::from(Hinted::new("no", "do"));
        let context = anyhow::anyhow!("cause").context(Hinted::new("no", "do"));
        for error in [plain, context] {
            assert_eq!(error.downcast_ref::<Hinted>().unwrap().hint, "do");
            assert!(causes(&error).starts_with("no"));
        }
    }

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow::anyhow!("refused")
            .context("lost: refused")
            .context("no");
        assert_eq!(causes(&error), "no: lost: refused");
    }
}
