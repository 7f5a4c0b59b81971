//! What is wrong with a configuration: each fault names the key, the value and the mend.

use std::fmt;

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The key, or where a source as a whole is at fault, its name.
    pub key: String,
    /// Absent for secrets and for what has no value.
    pub value: Option<String>,
    pub problem: String,
    /// What to do; empty where the problem says it.
    pub mend: String,
}

impl ConfigError {
    pub(super) fn new(
        key: impl Into<String>,
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            key: key.into(),
            value: None,
            problem: problem.into(),
            mend: mend.into(),
        }
    }

    pub(super) fn with_value(mut self, value: impl fmt::Display) -> Self {
        self.value = Some(value.to_string());
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if let Some(value) = &self.value {
            write!(f, " = {value}")?;
        }
        write!(f, ": {}", self.problem)?;
        if !self.mend.is_empty() {
            write!(f, "; {}", self.mend)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// All faults that were found, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is not right")?;
        for error in &self.0 {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
