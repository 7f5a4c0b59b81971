//! What is wrong with a configuration, and the rules that many keys share.

use std::fmt::Display;
use std::time::Duration;

use crate::config::error::{ConfigError, ConfigErrors};
use crate::config::values::span::show;

#[derive(Default)]
pub(super) struct Faults(pub(super) Vec<ConfigError>);

impl Faults {
    pub(super) fn unless(&mut self, holds: bool, fault: impl FnOnce() -> ConfigError) {
        if !holds {
            self.0.push(fault());
        }
    }

    /// A count that 0 would bring to a standstill.
    pub(super) fn at_least_one<T: Copy + Display + From<u8> + PartialOrd>(
        &mut self,
        key: &str,
        count: T,
    ) {
        self.unless(count >= T::from(1), || {
            ConfigError::new(
                key,
                "nothing could be done with none",
                "set it to 1 or more",
            )
            .with_value(count)
        });
    }

    /// A time that 0 would turn into no time at all, or into a loop without a pause.
    pub(super) fn some_time(&mut self, key: &str, time: Duration) {
        self.unless(!time.is_zero(), || {
            ConfigError::new(key, "it must not be zero", "set it to 1ms or more")
                .with_value(show(time))
        });
    }

    /// `key` must not be longer than `other`.
    pub(super) fn not_longer(
        &mut self,
        (key, time): (&str, Duration),
        (other, limit): (&str, Duration),
    ) {
        self.unless(time <= limit, || {
            ConfigError::new(
                key,
                format!("it is longer than {other} = {}", show(limit)),
                format!(
                    "set it to {} or less, or {other} to {} or more",
                    show(limit),
                    show(time)
                ),
            )
            .with_value(show(time))
        });
    }

    pub(super) fn shorter(
        &mut self,
        (key, time): (&str, Duration),
        (other, limit): (&str, Duration),
    ) {
        self.unless(time < limit, || {
            ConfigError::new(
                key,
                format!("it is not shorter than {other} = {}", show(limit)),
                format!(
                    "set it below {}, or {other} above {}",
                    show(limit),
                    show(time)
                ),
            )
            .with_value(show(time))
        });
    }

    pub(super) fn result(self) -> Result<(), ConfigErrors> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(ConfigErrors(self.0))
        }
    }
}
