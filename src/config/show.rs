//! Shows what is in force, so that it can be read, searched and given back as a file.

use serde_json::Value;

use super::Config;

pub(super) fn effective(config: &Config) -> String {
    let mut lines = Vec::new();
    match serde_json::to_value(config) {
        Ok(value) => walk("", &value, &mut lines),
        // Every type of a section can be shown; should one not be, the reason is told.
        Err(error) => lines.push(format!("# {error}\n")),
    }
    lines.concat()
}

fn walk(key: &str, value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let key = if key.is_empty() {
                    name.clone()
                } else {
                    format!("{key}.{name}")
                };
                walk(&key, value, lines);
            }
        }
        Value::Null => lines.push(format!("{key} = \"\"\n")),
        // A JSON text, number or list of texts is written in TOML as it is in JSON.
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            lines.push(format!("{key} = {value}\n"));
        }
    }
}
