//! Form-encoded parameters with bracketed names, in a body or a query.

use sha2::{Digest, Sha256};

#[derive(Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    pub(super) fn parse(encoded: &[u8]) -> Self {
        Self(form_urlencoded::parse(encoded).into_owned().collect())
    }

    /// The last value given, as Stripe takes it.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    }

    /// Like [`Form::get`], an empty value counting as none.
    pub(super) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// `name[inner]=value` as (inner, value).
    pub(super) fn nested<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter_map(move |(given, value)| {
            let inner = given
                .strip_prefix(name)?
                .strip_prefix('[')?
                .split_once(']')?
                .0;
            Some((inner, value.as_str()))
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| base(given) == name)
    }

    /// The first parameter whose name, brackets aside, is not in `known`.
    pub(super) fn unknown(&self, known: &[&str]) -> Option<&str> {
        self.0
            .iter()
            .map(|(given, _)| base(given))
            .find(|given| !known.contains(given))
    }

    /// Says whether two requests are the same one: the order of the parameters does not count.
    pub(super) fn fingerprint(&self, method: &str, path: &str) -> [u8; 16] {
        let mut pairs: Vec<_> = self
            .0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        pairs.sort_unstable();
        let mut hasher = Sha256::new();
        for part in [method, path]
            .into_iter()
            .chain(pairs.into_iter().flat_map(|(name, value)| [name, value]))
        {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
        let mut short = [0; 16];
        short.copy_from_slice(&hasher.finalize()[..16]);
        short
    }
}

fn base(name: &str) -> &str {
    name.split_once('[').map_or(name, |(base, _)| base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bracketed_names_are_read() {
        let form = Form::parse(
            b"amount=1&metadata[a+b]=c%26d&metadata%5Be%5D=f&payment_method_types[]=card",
        );
        assert_eq!(
            form.nested("metadata").collect::<Vec<_>>(),
            [("a b", "c&d"), ("e", "f")]
        );
        assert!(form.has("payment_method_types"));
        assert_eq!(
            form.unknown(&["amount", "metadata"]),
            Some("payment_method_types")
        );
    }

    #[test]
    fn the_order_of_parameters_does_not_count_but_their_borders_do() {
        let one = Form::parse(b"a=1&b=2").fingerprint("POST", "/x");
        assert_eq!(one, Form::parse(b"b=2&a=1").fingerprint("POST", "/x"));
        assert_ne!(one, Form::parse(b"a=1b&=2").fingerprint("POST", "/x"));
        assert_ne!(one, Form::parse(b"a=1&b=2").fingerprint("POST", "/y"));
    }
}
