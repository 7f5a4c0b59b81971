//! Requests of random bytes, and of nearly the right ones, over real connections: each is answered with less than 500 or its
//! connection is closed, nothing hangs, and nothing is stored that was not accepted.
//!
//! `PAYONCE_RAW_REQUESTS` is how many; `PAYONCE_RAW_SEED` repeats a run.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{API, WORKER};
use crate::support::TestService;
use crate::support::client::Client;

const CLIENTS: u64 = 8;
const GOOD_BODY: &str =
    r#"{"amount":1000,"currency":"usd","payment_method":"pm_card_visa","metadata":{"a":"b"}}"#;

fn number(name: &str, otherwise: u64) -> u64 {
    let set = std::env::var_os(name).map(|value| value.into_string().unwrap());
    set.map_or(otherwise, |value| value.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_bytes_get_a_5xx_a_hung_connection_or_a_row_that_was_not_accepted() {
    let service = TestService::new().await;
    let api = service.run_with(API, &[]).await;
    let each = number("PAYONCE_RAW_REQUESTS", 2000) / CLIENTS;
    let seed = number(
        "PAYONCE_RAW_SEED",
        u64::from_be_bytes(payonce::random::Random::from_os().bytes()),
    );
    let clients = (0..CLIENTS).map(|number| {
        let (client, random) = (
            api.client.clone(),
            StdRng::seed_from_u64(seed.wrapping_add(number)),
        );
        tokio::spawn(send_many(client, random, each, seed))
    });
    let mut tally = Tally::default();
    for client in clients.collect::<Vec<_>>() {
        let of_one = client.await.unwrap();
        tally.accepted += of_one.accepted;
        tally.refused += of_one.refused;
        tally.closed += of_one.closed;
    }
    // Each kind was met, so the test has tested something.
    let Tally {
        accepted,
        refused,
        closed,
    } = tally;
    assert!(
        accepted > 0 && refused > accepted,
        "{accepted} {refused} {closed}, seed {seed}"
    );
    assert_eq!(
        service.stored().await,
        i64::try_from(accepted).unwrap(),
        "seed {seed}"
    );
    api.stop().await;
    // What was accepted need not be paid: a spoilt token is one that the provider does not know.
    let worker = service.run_with(WORKER, &[]).await;
    service.drained().await;
    worker.stop().await;
    service.check_books().await;
}

#[derive(Default)]
struct Tally {
    accepted: usize,
    refused: usize,
    closed: usize,
}

async fn send_many(client: Client, mut random: StdRng, count: u64, seed: u64) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..count {
        let request = request(&client, &mut random);
        let told = || format!("seed {seed}: {}", String::from_utf8_lossy(&request));
        let answered = tokio::time::timeout(Duration::from_secs(30), exchange(&client, &request));
        let Ok(answer) = answered.await else {
            panic!("hangs, {}", told());
        };
        let status: Option<u16> = answer
            .get(9..12)
            .and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
        match status {
            Some(202) => tally.accepted += 1,
            Some(status) if (200..500).contains(&status) => tally.refused += 1,
            Some(status) => panic!("{status}, {}", told()),
            None => {
                assert!(answer.is_empty(), "no HTTP, {}", told());
                tally.closed += 1;
            }
        }
    }
    tally
}

/// All that comes back until the connection is closed; the sending side is closed first, so that nobody waits for more.
async fn exchange(client: &Client, request: &[u8]) -> Vec<u8> {
    let mut stream = client.connect().await;
    // The service may have closed it already: then what it said is to be read.
    let _ = stream.write_all(request).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

/// A request in which one or two things are random, or nothing but random bytes.
fn request(client: &Client, random: &mut StdRng) -> Vec<u8> {
    if random.random_range(0..10) == 0 {
        return bytes(random, 400);
    }
    let key = format!("raw-{:016x}", random.random::<u64>());
    let mut parts: [Vec<u8>; 6] = [
        b"POST".to_vec(),
        b"/v1/charges".to_vec(),
        format!("Bearer {}", client.token).into_bytes(),
        key.into_bytes(),
        b"application/json".to_vec(),
        GOOD_BODY.as_bytes().to_vec(),
    ];
    for _ in 0..random.random_range(0..3) {
        // The body and the key more often than the rest.
        let at = [0, 1, 2, 3, 3, 3, 4, 5, 5, 5, 5][random.random_range(0..11)];
        parts[at] = spoilt(&parts[at], random);
    }
    let [method, path, token, key, content_type, body] = parts;
    let extra = match random.random_range(0..6) {
        0 => [
            b"x-".as_slice(),
            &bytes(random, 20),
            b": ",
            &bytes(random, 60),
            b"\r\n",
        ]
        .concat(),
        1 => [b"prefer: ".as_slice(), &bytes(random, 30), b"\r\n"].concat(),
        2 => [b"x-request-id: ".as_slice(), &bytes(random, 60), b"\r\n"].concat(),
        _ => Vec::new(),
    };
    let length = match random.random_range(0..20) {
        0 => "transfer-encoding: chunked\r\n".to_owned(),
        1 => format!(
            "content-length: {}\r\ntransfer-encoding: chunked\r\n",
            body.len()
        ),
        2 => format!("content-length: {}\r\n", body.len() + 7),
        _ => format!("content-length: {}\r\n", body.len()),
    };
    [
        &method,
        b" ".as_slice(),
        &path,
        b" HTTP/1.1\r\nhost: payonce\r\nconnection: close\r\nauthorization: ",
        &token,
        b"\r\nidempotency-key: ",
        &key,
        b"\r\ncontent-type: ",
        &content_type,
        b"\r\n",
        &extra,
        length.as_bytes(),
        b"\r\n",
        &body,
    ]
    .concat()
}

/// Other bytes altogether, or the same with some of them changed, left out or doubled.
fn spoilt(good: &[u8], random: &mut StdRng) -> Vec<u8> {
    if random.random_range(0..3) == 0 {
        let most = [10, 300, 5000][random.random_range(0..3)];
        return bytes(random, most);
    }
    let mut spoilt = good.to_vec();
    for _ in 0..random.random_range(1..4) {
        let at = random.random_range(0..spoilt.len().max(1));
        match random.random_range(0..4) {
            0 if at < spoilt.len() => spoilt[at] = random.random(),
            1 if at < spoilt.len() => drop(spoilt.remove(at)),
            2 => spoilt.truncate(at),
            _ => {
                let piece = [
                    &b"\\u0000"[..],
                    b"\"",
                    b",",
                    b"{",
                    b"1e400",
                    b"\xf0\x9f",
                    b"null",
                    b"[[[[",
                ];
                let piece = piece[random.random_range(0..piece.len())];
                let at = at.min(spoilt.len());
                spoilt.splice(at..at, piece.iter().copied());
            }
        }
    }
    spoilt
}

fn bytes(random: &mut StdRng, most: usize) -> Vec<u8> {
    let length = random.random_range(0..most);
    // Half of the time what a header may hold, so that it gets past the parser of HTTP.
    let visible = random.random_bool(0.5);
    (0..length)
        .map(|_| {
            if visible {
                random.random_range(0x20..0x7f)
            } else {
                random.random()
            }
        })
        .collect()
}
