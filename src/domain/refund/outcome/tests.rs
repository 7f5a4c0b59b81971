use super::*;
use crate::domain::outcome::Health;

fn asked() -> AskedRefund {
    AskedRefund {
        amount: 500,
        currency: "usd".to_owned(),
        stamp: "rfd_1".to_owned(),
        charge: ProviderChargeId::parse("pi_1").unwrap(),
    }
}

fn refund(status: RefundStatus) -> RefundObject {
    RefundObject {
        id: ProviderRefundId::parse("re_1").unwrap(),
        charge: ProviderChargeId::parse("pi_1"),
        status,
        amount: 500,
        currency: "usd".to_owned(),
        stamp: Some("rfd_1".to_owned()),
        failure_reason: None,
    }
}

fn object(status: RefundStatus, replayed: bool) -> Answer<RefundObject> {
    Answer::Object {
        object: refund(status),
        replayed,
    }
}

fn refused(replayed: bool) -> Answer<RefundObject> {
    Answer::Refused {
        failure: failure(None),
        replayed,
    }
}

fn unclear(reason: Unclear, replayed: bool) -> Answer<RefundObject> {
    Answer::Unclear { reason, replayed }
}

const EVERY_UNCLEAR: [Unclear; 9] = [
    Unclear::Timeout,
    Unclear::ConnectionLost,
    Unclear::ServerError,
    Unclear::KeyInUse,
    Unclear::IdempotencyError,
    Unclear::UnexpectedState,
    Unclear::Unreadable,
    Unclear::UnknownStatus,
    Unclear::Redirect,
];

fn sent(attempts: i32) -> RefundProgress {
    RefundProgress {
        attempts,
        ..RefundProgress::new()
    }
}

#[test]
fn nothing_is_sent_before_a_look_and_nothing_twice() {
    assert_eq!(first(&sent(0)), RefundStep::Look(None));
    assert_eq!(first(&sent(1)), RefundStep::Look(None));
    let known = RefundProgress {
        object: ProviderRefundId::parse("re_1"),
        ..sent(1)
    };
    assert!(matches!(first(&known), RefundStep::Read(_)));
}

#[test]
fn a_refund_with_our_stamp_is_taken_over_whatever_else_is_known() {
    let others = RefundObject {
        stamp: None,
        ..refund(RefundStatus::Succeeded)
    };
    let verdicts = [
        None,
        Some(Verdict::KeySpent),
        Some(Verdict::Refused(failure(None))),
    ];
    for verdict in verdicts {
        for window_open in [true, false] {
            let found = [others.clone(), refund(RefundStatus::Succeeded)];
            let step = after_look(&found, &asked(), &sent(2), verdict.clone(), window_open);
            assert!(matches!(step, RefundStep::Succeed(_)), "{step:?}");
            let two = [
                refund(RefundStatus::Succeeded),
                refund(RefundStatus::Failed),
            ];
            let step = after_look(&two, &asked(), &sent(2), verdict.clone(), window_open);
            assert!(matches!(
                step,
                RefundStep::Park {
                    alert: RefundAlert::SecondRefund,
                    ..
                }
            ));
        }
    }
}

#[test]
fn without_a_refund_it_is_sent_within_the_window_and_left_to_a_person_after_it() {
    let look = |attempts, verdict, open| after_look(&[], &asked(), &sent(attempts), verdict, open);
    assert_eq!(look(0, None, true), RefundStep::Send);
    // Never sent under this key: there is no window.
    assert_eq!(look(0, None, false), RefundStep::Send);
    assert_eq!(look(3, None, true), RefundStep::Send);
    assert_eq!(
        look(3, None, false),
        RefundStep::Park {
            alert: RefundAlert::KeyWindowOver,
            object: None
        }
    );
    assert_eq!(look(3, Some(Verdict::KeySpent), true), RefundStep::SendAnew);
    let refused = Verdict::Refused(failure(None));
    assert!(matches!(
        look(3, Some(refused), true),
        RefundStep::Fail(_, None, _)
    ));
}

#[test]
fn a_refusal_is_believed_once_no_other_send_can_do_anything() {
    let step = after_send(refused(false), &asked(), 1);
    assert!(matches!(step, RefundStep::Look(Some(Verdict::Refused(_)))));
    assert!(matches!(
        after_send(refused(true), &asked(), 4),
        RefundStep::Look(Some(Verdict::Refused(_)))
    ));
    assert!(matches!(
        after_send(refused(false), &asked(), 2),
        RefundStep::Wait {
            certainty: RefundCertainty::Unclear,
            ..
        }
    ));
}

#[test]
fn no_silence_no_error_page_and_no_number_of_attempts_ever_fails_a_refund() {
    for reason in EVERY_UNCLEAR {
        for replayed in [false, true] {
            for attempts in [1, 2, 1000] {
                let step = after_send(unclear(reason, replayed), &asked(), attempts);
                match step {
                    RefundStep::Wait {
                        certainty: RefundCertainty::Unclear,
                        ..
                    } => {}
                    RefundStep::Look(Some(Verdict::KeySpent)) => assert!(replayed),
                    other => panic!("{reason:?} {replayed}: {other:?}"),
                }
            }
            let step = after_read(unclear(reason, replayed), &asked());
            assert!(matches!(
                step,
                RefundStep::Wait {
                    certainty: RefundCertainty::AsBefore,
                    ..
                }
            ));
        }
    }
    for answer in [
        Answer::NotSent,
        Answer::Denied,
        Answer::Forbidden,
        Answer::RateLimited { retry_after: None },
    ] {
        assert!(matches!(
            after_send(answer.clone(), &asked(), 1),
            RefundStep::Wait {
                certainty: RefundCertainty::NotSent,
                ..
            }
        ));
        assert!(matches!(
            unread(&answer),
            RefundStep::Wait {
                certainty: RefundCertainty::AsBefore,
                ..
            }
        ));
    }
}

#[test]
fn a_replayed_refund_is_read_before_it_is_believed() {
    for status in [
        RefundStatus::Succeeded,
        RefundStatus::Pending,
        RefundStatus::Failed,
    ] {
        let step = after_send(object(status, true), &asked(), 2);
        assert!(matches!(step, RefundStep::Read(_)), "{step:?}");
    }
    assert!(matches!(
        after_send(object(RefundStatus::Succeeded, false), &asked(), 1),
        RefundStep::Succeed(_)
    ));
}

#[test]
fn a_refund_that_is_not_the_one_asked_for_is_left_to_a_person() {
    let base = || refund(RefundStatus::Succeeded);
    for wrong in [
        RefundObject {
            amount: 499,
            ..base()
        },
        RefundObject {
            currency: "eur".to_owned(),
            ..base()
        },
        RefundObject {
            stamp: Some("rfd_2".to_owned()),
            ..base()
        },
        RefundObject {
            charge: ProviderChargeId::parse("pi_2"),
            ..base()
        },
    ] {
        for replayed in [false, true] {
            let answer = Answer::Object {
                object: wrong.clone(),
                replayed,
            };
            assert!(matches!(
                after_send(answer, &asked(), 1),
                RefundStep::Park {
                    alert: RefundAlert::Differs,
                    ..
                }
            ));
        }
    }
}

#[test]
fn every_word_is_listed_and_a_refusal_is_no_illness() {
    for answer in [
        object(RefundStatus::Unknown, false),
        refused(false),
        unclear(Unclear::Timeout, false),
        Answer::NotFound,
    ] {
        assert!(RefundObject::WORDS.contains(&answer.word()));
    }
    assert_eq!(refused(false).health(), Health::Good);
}
