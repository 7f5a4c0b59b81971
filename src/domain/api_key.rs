//! API keys: `payonce_live_` or `payonce_test_`, 30 random base62 characters and 6 that check them.
//!
//! The check is CRC-32 (IEEE 802.3) over everything before it, in base62 with the most significant digit first. It lets
//! scanners tell a leaked key from noise, and lets the service refuse a mistyped one without asking the database.
//! Only the SHA-256 of a key is ever kept; nothing here prints a key.

use std::fmt;

use sha2::{Digest, Sha256};

/// The one key of `payonce dev`; refused everywhere else.
pub const DEV_KEY: &str = "po_dev_key";

const LIVE_PREFIX: &str = "payonce_live_";
const TEST_PREFIX: &str = "payonce_test_";
/// 30 base62 characters are 178 bits: nobody guesses one.
const RANDOM_LENGTH: usize = 30;
const CHECK_LENGTH: usize = 6;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Whether a key moves real money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Test,
    Live,
}

impl Mode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Live => "live",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "test" => Some(Self::Test),
            "live" => Some(Self::Live),
            _ => None,
        }
    }
}

/// What a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Read,
    Write,
}

impl Scope {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "read" => Some(Self::Read),
            "write" => Some(Self::Write),
            _ => None,
        }
    }
}

/// SHA-256 of a key: what is stored and looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash(pub [u8; 32]);

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

/// A well-formed key, as a caller presented it or as it was just made.
#[derive(Clone)]
pub struct ApiKey<'a> {
    text: std::borrow::Cow<'a, str>,
    mode: Mode,
}

impl fmt::Debug for ApiKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey")
    }
}

impl<'a> ApiKey<'a> {
    /// Reads a key whose shape and check are right; the dev key is one if `dev`.
    pub fn parse(text: &'a str, dev: bool) -> Option<Self> {
        let mode = if dev && text == DEV_KEY {
            Mode::Test
        } else {
            well_formed(text)?
        };
        Some(Self {
            text: text.into(),
            mode,
        })
    }

    /// Makes a key of `mode`.
    pub fn generate(mode: Mode, random: &mut impl rand::CryptoRng) -> ApiKey<'static> {
        let mut text = match mode {
            Mode::Live => LIVE_PREFIX,
            Mode::Test => TEST_PREFIX,
        }
        .to_owned();
        let end = text.len() + RANDOM_LENGTH;
        while text.len() < end {
            let mut byte = [0_u8];
            random.fill_bytes(&mut byte);
            // 248 is the largest multiple of 62 in a byte: what is above it would favour some characters.
            if byte[0] < 248 {
                text.push(char::from(BASE62[usize::from(byte[0] % 62)]));
            }
        }
        let check = check(text.as_bytes());
        text.extend(check.map(char::from));
        ApiKey {
            text: text.into(),
            mode,
        }
    }

    /// The key itself: for the one place that hands it out.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.text.as_bytes()).into())
    }

    /// The last four characters, to tell keys apart in a list.
    pub fn hint(&self) -> &str {
        &self.text[self.text.len() - 4..]
    }
}

fn well_formed(text: &str) -> Option<Mode> {
    let (mode, rest) = if let Some(rest) = text.strip_prefix(LIVE_PREFIX) {
        (Mode::Live, rest)
    } else {
        (Mode::Test, text.strip_prefix(TEST_PREFIX)?)
    };
    if rest.len() != RANDOM_LENGTH + CHECK_LENGTH
        || !rest.bytes().all(|b| b.is_ascii_alphanumeric())
    {
        return None;
    }
    let (checked, given) = text.as_bytes().split_at(text.len() - CHECK_LENGTH);
    (given == check(checked)).then_some(mode)
}

fn check(bytes: &[u8]) -> [u8; CHECK_LENGTH] {
    let mut rest = crc32(bytes) as usize;
    let mut digits = [b'0'; CHECK_LENGTH];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[rest % 62];
        rest /= 62;
    }
    digits
}

/// CRC-32 as in IEEE 802.3, zip and PNG.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0_u32; 256];
        let mut at = 0;
        while at < 256 {
            #[expect(clippy::cast_possible_truncation, reason = "below 256")]
            let mut value = at as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 {
                    0xEDB8_8320 ^ (value >> 1)
                } else {
                    value >> 1
                };
                bit += 1;
            }
            table[at] = value;
            at += 1;
        }
        table
    };
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        TABLE[((crc ^ u32::from(*byte)) & 0xFF) as usize] ^ (crc >> 8)
    });
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn the_check_is_the_crc_32_of_the_standards() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn the_shape_of_a_key_never_changes() {
        let text = format!("payonce_test_{}", "0".repeat(30));
        let check = String::from_utf8(check(text.as_bytes()).to_vec()).unwrap();
        assert_eq!(check, "2jScBo");
    }

    #[test]
    fn a_made_key_is_read_back_in_its_mode_and_another_character_breaks_it() {
        let mut random = StdRng::seed_from_u64(7);
        for mode in [Mode::Live, Mode::Test] {
            let key = ApiKey::generate(mode, &mut random);
            let text = key.reveal().to_owned();
            assert_eq!(text.len(), 13 + 36);
            assert_eq!(ApiKey::parse(&text, false).unwrap().mode(), mode);
            assert_eq!(key.hint(), &text[text.len() - 4..]);
            assert_eq!(format!("{key:?}"), "ApiKey");
            for at in 0..text.len() {
                let mut bytes = text.clone().into_bytes();
                bytes[at] = if bytes[at] == b'x' { b'y' } else { b'x' };
                let broken = String::from_utf8(bytes).unwrap();
                assert!(ApiKey::parse(&broken, false).is_none(), "{at}");
            }
            assert!(ApiKey::parse(&text[..text.len() - 1], false).is_none());
        }
    }

    #[test]
    fn the_dev_key_is_a_key_in_dev_alone() {
        assert!(ApiKey::parse(DEV_KEY, false).is_none());
        assert_eq!(ApiKey::parse(DEV_KEY, true).unwrap().mode(), Mode::Test);
    }

    proptest! {
        #[test]
        fn reading_a_key_never_panics(text in "\\PC{0,60}") {
            let _ = ApiKey::parse(&text, true);
        }
    }
}
