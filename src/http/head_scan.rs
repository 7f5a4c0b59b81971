//! Looks at a head as it comes off the wire, for what the parser does not tell: whether it says a length and a transfer
//! coding at once. Whoever stands between may have gone by the other one, and take the rest for the next request.

const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";
const LONGEST: usize = CODING.len();

/// Fed with the bytes of one head, in any pieces.
#[derive(Debug, Default)]
pub struct HeadScan {
    /// How the line under way begins.
    line: [u8; LONGEST],
    length: usize,
    at: At,
    says_length: bool,
    says_coding: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// The empty lines that may come before a request.
    #[default]
    Start,
    Lines,
    End,
}

impl HeadScan {
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while self.at != At::End && !bytes.is_empty() {
            let end = bytes.iter().position(|b| *b == b'\n');
            let (line, rest) = match end {
                Some(end) => (&bytes[..end], &bytes[end + 1..]),
                None => (bytes, &[][..]),
            };
            let kept = line.len().min(LONGEST - self.length);
            self.line[self.length..self.length + kept].copy_from_slice(&line[..kept]);
            self.length += kept;
            if end.is_some() {
                self.judge();
                self.length = 0;
            }
            bytes = rest;
        }
    }

    pub fn is_ambiguous(&self) -> bool {
        self.at == At::End && self.says_length && self.says_coding
    }

    fn judge(&mut self) {
        let line = &self.line[..self.length];
        if matches!(line, [] | [b'\r']) {
            if self.at == At::Lines {
                self.at = At::End;
            }
            return;
        }
        let says = |name: &[u8]| {
            line.get(..name.len())
                .is_some_and(|begin| begin.eq_ignore_ascii_case(name))
        };
        // The first line is no header, and begins with neither name.
        self.at = At::Lines;
        self.says_length |= says(LENGTH);
        self.says_coding |= says(CODING);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_and_coding_are_found_in_any_pieces_and_only_in_the_head() {
        let both = "\r\nPOST / HTTP/1.1\r\nHost: x\r\nContent-LENGTH: 3\r\nX: y\r\ntransfer-Encoding: chunked\r\n\r\n";
        let bare = "POST / HTTP/1.1\nTransfer-Encoding:chunked\nContent-Length:3\n\n";
        let one = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nX-Content-Length: 3\r\n\r\ncontent-length: 3\r\n\r\n";
        let open = "POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n";
        for (head, expected) in [(both, true), (bare, true), (one, false), (open, false)] {
            for size in 1..=head.len() {
                let mut scan = HeadScan::default();
                for piece in head.as_bytes().chunks(size) {
                    scan.feed(piece);
                }
                assert_eq!(scan.is_ambiguous(), expected, "{size}: {head}");
            }
        }
    }
}
