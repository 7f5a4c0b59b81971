//! The adapter against small servers on port 0, each of which answers in one way and keeps what it was sent.

mod server;
mod setup;

use std::borrow::Cow;
use std::collections::BTreeMap;

use tokio::net::TcpListener;

use self::server::{Act, Server};
use super::*;
use crate::domain::outcome::ObjectStatus;

const STAMP: &str = "chg_03510a50e711533aba21e1dd9ddf20be";

fn settings(base_url: &str) -> StripeSettings {
    StripeSettings {
        account: "default".to_owned(),
        base_url: base_url.to_owned(),
        secret_key: SecretKey::parse("sk_test_4eC39H").unwrap(),
        api_version: "2025-03-31.basil".to_owned(),
        timeout: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(5),
        pool_idle: 4,
        key_window: Duration::from_hours(24),
    }
}

fn http(status: &str, more: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{more}\r\n{body}")
}

fn intent(id: &str, status: &str) -> String {
    format!(
        r#"{{"id":"{id}","object":"payment_intent","amount":1999,"amount_received":1999,"currency":"usd","status":"{status}","metadata":{{"payonce_charge_id":"{STAMP}"}}}}"#
    )
}

fn ok(status: &str) -> Act {
    Act::Reply(http(
        "200 OK",
        "request-id: req_1\r\n",
        &intent("pi_1", status),
    ))
}

fn charge() -> ChargeId {
    STAMP.parse().unwrap()
}

fn object() -> ProviderChargeId {
    ProviderChargeId::parse("pi_1").unwrap()
}

fn instruction() -> Instruction<'static> {
    Instruction {
        amount: 1999,
        currency: Cow::Borrowed("usd"),
        payment_method: Cow::Borrowed("pm_card_visa"),
        customer: None,
        return_url: None,
        off_session: false,
        description: None,
        metadata: Cow::Owned(BTreeMap::from([("order".to_owned(), "42".to_owned())])),
    }
}

fn unclear(reason: Unclear) -> Answer {
    Answer::Unclear {
        reason,
        replayed: false,
    }
}

#[tokio::test]
async fn each_call_goes_to_its_path_with_its_headers_and_the_two_that_move_things_with_one_key() {
    let server = Server::start(vec![ok("requires_confirmation")]).await;
    let stripe = server.stripe();
    let reply = stripe.prepare(charge(), STAMP, &instruction()).await;
    assert_eq!(reply.request_id.as_deref(), Some("req_1"));
    let Answer::Object { object: made, .. } = reply.answer else {
        panic!("{reply:?}");
    };
    assert_eq!(made.status, ObjectStatus::RequiresConfirmation);
    stripe.execute(&object(), "key-x1", &instruction()).await;
    stripe.read(&object()).await;
    stripe.cancel(&object()).await;

    let seen = server.seen();
    for (request, line, key) in [
        (
            &seen[0],
            "POST /v1/payment_intents HTTP/1.1\r\n",
            Some(STAMP),
        ),
        (
            &seen[1],
            "POST /v1/payment_intents/pi_1/confirm HTTP/1.1\r\n",
            Some("key-x1"),
        ),
        (&seen[2], "GET /v1/payment_intents/pi_1 HTTP/1.1\r\n", None),
        (
            &seen[3],
            "POST /v1/payment_intents/pi_1/cancel HTTP/1.1\r\n",
            None,
        ),
    ] {
        assert!(request.starts_with(line), "{request}");
        for header in [
            "authorization: Bearer sk_test_4eC39H\r\n",
            "stripe-version: 2025-03-31.basil\r\n",
            concat!("user-agent: payonce/", env!("CARGO_PKG_VERSION"), "\r\n"),
        ] {
            assert_eq!(request.matches(header).count(), 1, "{header} {request}");
        }
        assert_eq!(
            request
                .to_lowercase()
                .matches("\r\nidempotency-key:")
                .count(),
            usize::from(key.is_some())
        );
        if let Some(key) = key {
            assert!(request.contains(&format!("\r\nidempotency-key: {key}\r\n")));
        }
    }
    assert!(seen[0].contains(&format!("metadata%5Bpayonce_charge_id%5D={STAMP}")));
    assert!(seen[1].ends_with("\r\n\r\nerror_on_requires_action=true"));
}

#[tokio::test]
async fn a_repeat_is_the_same_bytes() {
    let server = Server::start(vec![Act::Break(String::new()), ok("requires_confirmation")]).await;
    let stripe = server.stripe();
    for _ in 0..2 {
        stripe.prepare(charge(), STAMP, &instruction()).await;
    }
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn a_connection_closed_before_the_reply_is_lost_and_not_repeated() {
    // The second request goes over the connection that the first left open, and is read before the close.
    let server = Server::start(vec![ok("processing"), Act::Break(String::new())]).await;
    let stripe = server.stripe();
    stripe.read(&object()).await;
    let reply = stripe.execute(&object(), "k", &instruction()).await;
    assert_eq!(reply.answer, unclear(Unclear::ConnectionLost));
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn a_truncated_body_is_lost_and_keeps_its_request_id() {
    let whole = http(
        "200 OK",
        "request-id: req_2\r\n",
        &intent("pi_1", "succeeded"),
    );
    let server = Server::start(vec![Act::Break(whole[..whole.len() - 9].to_owned())]).await;
    let reply = server
        .stripe()
        .execute(&object(), "k", &instruction())
        .await;
    assert_eq!(reply.answer, unclear(Unclear::ConnectionLost));
    assert_eq!(reply.request_id.as_deref(), Some("req_2"));
}

#[tokio::test]
async fn silence_and_a_trickle_end_at_the_deadline() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n".to_owned();
    for act in [Act::Hang, Act::Trickle(head)] {
        let server = Server::start(vec![act]).await;
        let stripe = Stripe::new(StripeSettings {
            timeout: Duration::from_millis(500),
            ..settings(&server.base_url)
        })
        .unwrap();
        let reply = stripe.execute(&object(), "k", &instruction()).await;
        assert_eq!(reply.answer, unclear(Unclear::Timeout));
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Server::start(vec![ok("succeeded")]).await;
    for status in ["301 Moved", "307 Temporary Redirect"] {
        let location = format!("location: {}/elsewhere\r\n", target.base_url);
        let server = Server::start(vec![Act::Reply(http(status, &location, ""))]).await;
        let reply = server
            .stripe()
            .execute(&object(), "k", &instruction())
            .await;
        assert_eq!(reply.answer, unclear(Unclear::Redirect));
    }
    assert!(target.seen().is_empty());
}

#[tokio::test]
async fn a_refused_connection_an_unknown_host_and_a_failed_handshake_sent_nothing() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    // Speaks no TLS: the deadline of connecting strikes in the handshake.
    let plain = Server::start(vec![Act::Hang]).await;
    let handshake = plain.base_url.replace("http://", "https://");
    for base_url in [refused, "http://nowhere.invalid".to_owned(), handshake] {
        let stripe = Stripe::new(StripeSettings {
            connect_timeout: Duration::from_millis(500),
            ..settings(&base_url)
        })
        .unwrap();
        let reply = stripe.execute(&object(), "k", &instruction()).await;
        assert_eq!(reply.answer, Answer::NotSent, "{base_url}");
    }
}

#[tokio::test]
async fn a_body_beyond_the_bound_is_unreadable_whether_it_says_so_or_not() {
    let most = 1024 * 1024;
    let declared = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", most + 1);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{most:x}\r\n{}\r\n1\r\n \r\n0\r\n\r\n",
        " ".repeat(most)
    );
    for reply in [declared, chunked] {
        let server = Server::start(vec![Act::Reply(reply)]).await;
        let stripe = server.stripe();
        assert_eq!(
            stripe.read(&object()).await.answer,
            unclear(Unclear::Unreadable)
        );
    }
}

#[tokio::test]
async fn a_body_in_pieces_is_put_together() {
    let body = intent("pi_1", "succeeded");
    let (a, b) = body.split_at(40);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{a}\r\n{:x}\r\n{b}\r\n0\r\n\r\n",
        a.len(),
        b.len()
    );
    let server = Server::start(vec![Act::Reply(chunked)]).await;
    let answer = server.stripe().read(&object()).await.answer;
    assert!(
        matches!(answer, Answer::Object { object, .. } if object.status == ObjectStatus::Succeeded)
    );
}

fn page(ids: &[&str], has_more: bool) -> Act {
    let data: Vec<String> = ids
        .iter()
        .map(|id| intent(id, "requires_confirmation"))
        .collect();
    let body = format!(
        r#"{{"object":"list","has_more":{has_more},"data":[{}]}}"#,
        data.join(",")
    );
    Act::Reply(http("200 OK", "", &body))
}

#[tokio::test]
async fn a_list_is_read_page_after_page() {
    let server = Server::start(vec![page(&["pi_3", "pi_2"], true), page(&["pi_1"], false)]).await;
    let since = OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap();
    let stripe = server.stripe();
    let first = stripe.list(since, None).await.unwrap();
    let second = stripe.list(since, first.next.as_ref()).await.unwrap();
    let ids: Vec<_> = [first.objects, second.objects]
        .concat()
        .into_iter()
        .map(|(stamp, object)| {
            assert_eq!(stamp, charge());
            object.id.to_string()
        })
        .collect();
    assert_eq!(ids, ["pi_3", "pi_2", "pi_1"]);
    assert_eq!(second.next, None);
    let seen = server.seen();
    let query = "GET /v1/payment_intents?created%5Bgte%5D=1700000000&limit=100";
    assert!(
        seen[0].starts_with(&format!("{query} HTTP/1.1")),
        "{}",
        seen[0]
    );
    assert!(
        seen[1].starts_with(&format!("{query}&starting_after=pi_2 HTTP/1.1")),
        "{}",
        seen[1]
    );
}

#[tokio::test]
async fn a_page_that_does_not_answer_or_goes_in_a_circle_has_not_asked() {
    for (act, reason) in [
        (Act::Reply(http("500 No", "", "")), Unclear::ServerError),
        (Act::Break(String::new()), Unclear::ConnectionLost),
        (page(&["pi_1"], true), Unclear::Unreadable),
    ] {
        let server = Server::start(vec![act]).await;
        let after = ProviderChargeId::parse("pi_1");
        let listed = server
            .stripe()
            .list(OffsetDateTime::UNIX_EPOCH, after.as_ref())
            .await;
        assert_eq!(listed, Err(Box::new(unclear(reason))));
    }
}

#[tokio::test]
async fn a_key_that_is_no_header_is_not_sent() {
    let server = Server::start(vec![ok("processing")]).await;
    for key in ["", "a\nb"] {
        let reply = server
            .stripe()
            .execute(&object(), key, &instruction())
            .await;
        assert!(matches!(reply.answer, Answer::Rejected { .. }), "{key:?}");
    }
    assert!(server.seen().is_empty());
}
