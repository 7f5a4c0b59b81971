//! The table, a test a row.

use super::*;

const ASKED: &str = "chg_1";

fn asked() -> Asked {
    Asked {
        amount: 1999,
        currency: "usd".to_owned(),
        stamp: ASKED.to_owned(),
    }
}

fn id() -> ProviderChargeId {
    ProviderChargeId::parse("pi_1").unwrap()
}

fn object(status: ObjectStatus) -> Object {
    Object {
        id: id(),
        amount_received: if status == ObjectStatus::Succeeded {
            1999
        } else {
            0
        },
        status,
        amount: 1999,
        currency: "usd".to_owned(),
        stamp: Some(ASKED.to_owned()),
        failure: None,
        next_url: None,
    }
}

fn reason() -> Failure {
    failure(
        "card_declined",
        "The card was declined.",
        Advice::UseAnotherPaymentMethod,
    )
}

fn answered(phase: Phase, answer: Answer) -> Step {
    decide(
        phase,
        answer,
        Context {
            asked: &asked(),
            canceling: None,
            cancel_requested: false,
            action_expired: false,
            looked: false,
        },
    )
}

fn showed(phase: Phase, object: Object, replayed: bool) -> Step {
    answered(phase, Answer::Object { object, replayed })
}

fn waits(certainty: Certainty, pace: Pace) -> Step {
    Step::Wait {
        certainty,
        pace,
        new_prepare_key: false,
    }
}

const PHASES: [Phase; 4] = [Phase::Prepare, Phase::Execute, Phase::Read, Phase::Cancel];
const AFTER_PREPARE: [Phase; 3] = [Phase::Execute, Phase::Read, Phase::Cancel];
const UNCLEAR: [Unclear; 9] = [
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

#[test]
fn a_success_as_asked_completes_whoever_learns_it_and_however_old_the_picture() {
    for phase in PHASES {
        for replayed in [false, true] {
            assert_eq!(
                showed(phase, object(ObjectStatus::Succeeded), replayed),
                Step::Succeed(id()),
                "{phase:?}"
            );
        }
    }
}

#[test]
fn a_success_of_another_amount_currency_or_stamp_is_a_discrepancy_and_completes_nothing() {
    let differing = [
        (
            Object {
                amount_received: 1799,
                ..object(ObjectStatus::Succeeded)
            },
            Alert::AmountDiffers,
        ),
        (
            Object {
                amount_received: 3998,
                ..object(ObjectStatus::Succeeded)
            },
            Alert::AmountDiffers,
        ),
        (
            Object {
                currency: "eur".to_owned(),
                ..object(ObjectStatus::Succeeded)
            },
            Alert::CurrencyDiffers,
        ),
        (
            Object {
                stamp: Some("CHG_1".to_owned()),
                ..object(ObjectStatus::Succeeded)
            },
            Alert::StampDiffers,
        ),
        (
            Object {
                stamp: None,
                ..object(ObjectStatus::Succeeded)
            },
            Alert::StampDiffers,
        ),
    ];
    for (object, expected) in differing {
        for phase in PHASES {
            let Step::Park {
                alert,
                object: Some(found),
            } = showed(phase, object.clone(), false)
            else {
                unreachable!("{phase:?} {object:?}")
            };
            assert_eq!((alert, *found), (expected, object.clone()));
        }
    }
}

#[test]
fn every_answer_has_its_word_in_the_list() {
    let unclear = UNCLEAR.map(|reason| Answer::Unclear {
        reason,
        replayed: false,
    });
    let objects = [
        ObjectStatus::RequiresConfirmation,
        ObjectStatus::RequiresPaymentMethod,
        ObjectStatus::RequiresAction,
        ObjectStatus::Processing,
        ObjectStatus::RequiresCapture,
        ObjectStatus::Succeeded,
        ObjectStatus::Canceled,
        ObjectStatus::Unknown,
    ]
    .map(|status| Answer::Object {
        object: object(status),
        replayed: false,
    });
    let others = [
        Answer::Refused {
            failure: failure("declined", "", Advice::TryAgainLater),
            replayed: false,
        },
        Answer::NotSent,
        Answer::RateLimited { retry_after: None },
        Answer::Denied,
        Answer::Forbidden,
        Answer::NotFound,
        Answer::Rejected {
            detail: String::new(),
        },
    ];
    let words: std::collections::HashSet<_> = unclear
        .iter()
        .chain(&objects)
        .chain(&others)
        .map(Answer::word)
        .collect();
    let listed: std::collections::HashSet<_> = Answer::WORDS.iter().copied().collect();
    assert_eq!(listed.len(), Answer::WORDS.len());
    assert_eq!(words, listed);
}

#[test]
fn an_object_that_is_not_the_one_we_asked_for_is_never_executed() {
    let other = Object {
        amount: 1,
        ..object(ObjectStatus::RequiresConfirmation)
    };
    for phase in [Phase::Prepare, Phase::Read] {
        assert!(matches!(
            showed(phase, other.clone(), false),
            Step::Park {
                alert: Alert::AmountDiffers,
                ..
            }
        ));
    }
}

#[test]
fn a_canceled_object_fails_the_charge_for_the_reason_it_was_canceled_for() {
    let declined = Object {
        failure: Some(reason()),
        ..object(ObjectStatus::Canceled)
    };
    for phase in AFTER_PREPARE {
        assert!(
            matches!(showed(phase, declined.clone(), false), Step::Fail(failure, _) if failure == reason())
        );
        let step = showed(phase, object(ObjectStatus::Canceled), false);
        assert!(matches!(step, Step::Fail(failure, _) if failure.code == "canceled_at_provider"));
    }
    let context = Context {
        asked: &asked(),
        canceling: Some(&Reason::Failed(reason())),
        cancel_requested: false,
        action_expired: false,
        looked: false,
    };
    let canceled = Answer::Object {
        object: object(ObjectStatus::Canceled),
        replayed: false,
    };
    assert!(
        matches!(decide(Phase::Cancel, canceled, context), Step::Fail(failure, _) if failure == reason())
    );
}

#[test]
fn a_canceled_object_that_was_never_stored_is_left_and_another_is_prepared() {
    let step = showed(Phase::Prepare, object(ObjectStatus::Canceled), false);
    assert_eq!(
        step,
        Step::Wait {
            certainty: Certainty::Unprepared,
            pace: Pace::Backoff,
            new_prepare_key: true
        }
    );
}

#[test]
fn a_decline_is_canceled_before_it_is_failed() {
    let refused = |replayed| Answer::Refused {
        failure: reason(),
        replayed,
    };
    assert_eq!(
        answered(Phase::Execute, refused(false)),
        Step::Cancel(Reason::Failed(reason()))
    );
    let declined = Object {
        failure: Some(reason()),
        ..object(ObjectStatus::RequiresPaymentMethod)
    };
    for phase in [Phase::Execute, Phase::Read] {
        assert_eq!(
            showed(phase, declined.clone(), false),
            Step::Cancel(Reason::Failed(reason()))
        );
    }
}

#[test]
fn a_replayed_decline_is_a_picture_of_the_past_and_the_object_is_read() {
    let refused = Answer::Refused {
        failure: reason(),
        replayed: true,
    };
    assert_eq!(answered(Phase::Execute, refused), Step::Read);
    for status in [
        ObjectStatus::RequiresPaymentMethod,
        ObjectStatus::RequiresAction,
        ObjectStatus::Processing,
    ] {
        assert_eq!(showed(Phase::Execute, object(status), true), Step::Read);
    }
}

#[test]
fn a_final_refusal_to_prepare_fails_also_when_it_is_replayed() {
    for replayed in [false, true] {
        let refused = Answer::Refused {
            failure: reason(),
            replayed,
        };
        assert!(
            matches!(answered(Phase::Prepare, refused), Step::Fail(failure, _) if failure == reason())
        );
    }
}

#[test]
fn the_customers_turn_is_shown_and_polled_slowly_until_it_expires() {
    let url = "https://hooks.example.com/3ds".to_owned();
    let acting = Object {
        next_url: Some(url.clone()),
        ..object(ObjectStatus::RequiresAction)
    };
    for phase in [Phase::Execute, Phase::Read] {
        let action = NextAction {
            url: url.clone(),
            expires_at: None,
        };
        assert_eq!(
            showed(phase, acting.clone(), false),
            waits(Certainty::CustomersTurn(action), Pace::Slow)
        );
    }
    let context = Context {
        asked: &asked(),
        canceling: None,
        cancel_requested: false,
        action_expired: true,
        looked: false,
    };
    let answer = Answer::Object {
        object: acting,
        replayed: false,
    };
    assert!(
        matches!(decide(Phase::Read, answer, context), Step::Cancel(Reason::Failed(f)) if f.code == "authentication_expired")
    );
    let nowhere = showed(Phase::Execute, object(ObjectStatus::RequiresAction), false);
    assert!(
        matches!(nowhere, Step::Cancel(Reason::Failed(f)) if f.code == "authentication_required")
    );
}

#[test]
fn the_providers_turn_is_shown_and_polled_slowly() {
    for status in [ObjectStatus::Processing, ObjectStatus::RequiresCapture] {
        for phase in [Phase::Execute, Phase::Read] {
            assert_eq!(
                showed(phase, object(status.clone()), false),
                waits(Certainty::ProvidersTurn, Pace::Slow)
            );
        }
    }
}

#[test]
fn an_object_read_as_not_executed_is_executed_and_one_that_says_so_of_itself_is_read_later() {
    for phase in [Phase::Prepare, Phase::Read] {
        for replayed in [false, true] {
            let step = showed(phase, object(ObjectStatus::RequiresConfirmation), replayed);
            assert_eq!(step, Step::Execute(id()));
        }
    }
    for phase in [Phase::Execute, Phase::Cancel] {
        let step = showed(phase, object(ObjectStatus::RequiresConfirmation), false);
        assert_eq!(step, waits(Certainty::Unclear, Pace::Backoff));
    }
}

#[test]
fn a_try_that_never_left_changes_nothing_that_was_known() {
    for phase in PHASES {
        assert_eq!(
            answered(phase, Answer::NotSent),
            waits(Certainty::AsBefore, Pace::Backoff)
        );
    }
}

#[test]
fn a_rate_limit_changes_nothing_and_sets_the_pace() {
    let asked_for = Duration::from_secs(7);
    for phase in PHASES {
        let limited = Answer::RateLimited {
            retry_after: Some(asked_for),
        };
        assert_eq!(
            answered(phase, limited),
            waits(Certainty::AsBefore, Pace::After(asked_for))
        );
        let limited = Answer::RateLimited { retry_after: None };
        assert_eq!(
            answered(phase, limited),
            waits(Certainty::AsBefore, Pace::Backoff)
        );
    }
}

#[test]
fn refused_credentials_fail_nothing() {
    for phase in PHASES {
        for denied in [Answer::Denied, Answer::Forbidden] {
            assert_eq!(denied.health(), Health::Denied);
            assert_eq!(
                answered(phase, denied),
                waits(Certainty::AsBefore, Pace::Backoff)
            );
        }
    }
}

#[test]
fn a_stored_id_that_is_not_found_and_a_parameter_of_ours_are_an_operators() {
    for phase in AFTER_PREPARE {
        assert_eq!(
            answered(phase, Answer::NotFound),
            Step::Park {
                alert: Alert::ObjectNotFound,
                object: None
            }
        );
    }
    for phase in PHASES {
        let rejected = Answer::Rejected {
            detail: "parameter_unknown".to_owned(),
        };
        assert_eq!(
            answered(phase, rejected),
            Step::Park {
                alert: Alert::RequestRejected,
                object: None
            }
        );
    }
}

#[test]
fn an_unclear_prepare_moved_nothing_and_is_asked_again_under_a_new_key_if_the_error_is_replayed() {
    let reasons = UNCLEAR
        .into_iter()
        .filter(|reason| *reason != Unclear::IdempotencyError);
    for reason in reasons {
        for replayed in [false, true] {
            let step = answered(Phase::Prepare, Answer::Unclear { reason, replayed });
            let expected = Step::Wait {
                certainty: Certainty::Unprepared,
                pace: Pace::Backoff,
                new_prepare_key: replayed,
            };
            assert_eq!(step, expected, "{reason:?}");
        }
    }
}

#[test]
fn a_prepare_whose_key_another_request_has_looks_and_then_takes_a_new_key() {
    let answer = Answer::Unclear {
        reason: Unclear::IdempotencyError,
        replayed: false,
    };
    assert_eq!(answered(Phase::Prepare, answer.clone()), Step::Look);
    let context = Context {
        asked: &asked(),
        canceling: None,
        cancel_requested: false,
        action_expired: false,
        looked: true,
    };
    assert_eq!(
        decide(Phase::Prepare, answer, context),
        Step::Wait {
            certainty: Certainty::Unprepared,
            pace: Pace::Backoff,
            new_prepare_key: true
        }
    );
}

#[test]
fn an_object_canceled_after_the_customers_time_fails_for_that() {
    let context = Context {
        asked: &asked(),
        canceling: None,
        cancel_requested: false,
        action_expired: true,
        looked: false,
    };
    let canceled = Answer::Object {
        object: object(ObjectStatus::Canceled),
        replayed: false,
    };
    assert!(
        matches!(decide(Phase::Read, canceled, context), Step::Fail(f, _) if f.code == "authentication_expired")
    );
}

#[test]
fn anything_unclear_after_prepare_is_unknown_and_never_failed() {
    for reason in UNCLEAR {
        for phase in AFTER_PREPARE {
            for replayed in [false, true] {
                let step = answered(phase, Answer::Unclear { reason, replayed });
                assert_eq!(
                    step,
                    waits(Certainty::Unclear, Pace::Backoff),
                    "{phase:?} {reason:?}"
                );
            }
        }
    }
    for phase in [Phase::Read, Phase::Cancel] {
        let refused = Answer::Refused {
            failure: reason(),
            replayed: false,
        };
        assert_eq!(
            answered(phase, refused),
            waits(Certainty::Unclear, Pace::Backoff)
        );
    }
    assert_eq!(
        showed(Phase::Read, object(ObjectStatus::Unknown), false),
        waits(Certainty::Unclear, Pace::Backoff)
    );
}

#[test]
fn only_what_can_move_no_more_fails() {
    // Every answer of every phase: a failure comes from a canceled object or a refusal to make one, from nothing else.
    let statuses = [
        ObjectStatus::RequiresConfirmation,
        ObjectStatus::RequiresPaymentMethod,
        ObjectStatus::RequiresAction,
        ObjectStatus::Processing,
        ObjectStatus::RequiresCapture,
        ObjectStatus::Succeeded,
        ObjectStatus::Canceled,
        ObjectStatus::Unknown,
    ];
    let mut answers = vec![
        Answer::NotSent,
        Answer::Denied,
        Answer::Forbidden,
        Answer::NotFound,
        Answer::RateLimited { retry_after: None },
        Answer::Rejected {
            detail: String::new(),
        },
    ];
    for replayed in [false, true] {
        answers.push(Answer::Refused {
            failure: reason(),
            replayed,
        });
        answers.extend(UNCLEAR.map(|reason| Answer::Unclear { reason, replayed }));
        answers.extend(statuses.clone().map(|status| Answer::Object {
            object: object(status),
            replayed,
        }));
    }
    for phase in PHASES {
        for answer in &answers {
            if let Step::Fail(..) = answered(phase, answer.clone()) {
                let canceled = matches!(answer, Answer::Object { object, .. } if object.status == ObjectStatus::Canceled);
                let never_made =
                    phase == Phase::Prepare && matches!(answer, Answer::Refused { .. });
                assert!(canceled || never_made, "{phase:?} {answer:?}");
            }
        }
    }
}

#[test]
fn certainty_is_sticky() {
    let action = NextAction {
        url: "https://example.com".to_owned(),
        expires_at: None,
    };
    let open = [
        State::Processing { sent: true },
        State::RequiresAction(action.clone()),
        State::RequiresReconciliation,
    ];
    let certainties = [
        Certainty::AsBefore,
        Certainty::Unprepared,
        Certainty::Unclear,
        Certainty::CustomersTurn(action),
        Certainty::ProvidersTurn,
    ];
    for before in open {
        for certainty in &certainties {
            let after = certainty.state_after(&before);
            assert_eq!(
                after.money(),
                crate::domain::charge::MoneyMoved::Unknown,
                "{before:?} {certainty:?}"
            );
        }
    }
    assert_eq!(
        Certainty::AsBefore.state_after(&State::Pending),
        State::Pending
    );
    assert_eq!(
        Certainty::Unprepared.state_after(&State::Pending),
        State::Processing { sent: false }
    );
}

#[test]
fn a_cancel_that_the_client_asked_for_is_sent_instead_of_execute_and_ends_as_canceled() {
    let asked = asked();
    let context = Context {
        asked: &asked,
        canceling: None,
        cancel_requested: true,
        action_expired: false,
        looked: false,
    };
    let read = |object| {
        decide(
            Phase::Read,
            Answer::Object {
                object,
                replayed: false,
            },
            context,
        )
    };
    let acting = Object {
        next_url: Some("https://example.com".to_owned()),
        ..object(ObjectStatus::RequiresAction)
    };
    assert_eq!(
        read(object(ObjectStatus::RequiresConfirmation)),
        Step::Cancel(Reason::Client)
    );
    assert_eq!(read(acting), Step::Cancel(Reason::Client));
    assert!(matches!(
        read(object(ObjectStatus::Canceled)),
        Step::Canceled(_)
    ));
    // Money that moved has moved, and a decline stays a decline.
    assert_eq!(read(object(ObjectStatus::Succeeded)), Step::Succeed(id()));
    let declined = Object {
        failure: Some(reason()),
        ..object(ObjectStatus::Canceled)
    };
    assert!(matches!(read(declined), Step::Fail(failure, _) if failure == reason()));
    // The bank decides.
    assert_eq!(
        read(object(ObjectStatus::Processing)),
        waits(Certainty::ProvidersTurn, Pace::Slow)
    );
}
