//! Refusals, and what a client is told of them.

use super::*;
use crate::domain::charge::Advice;

#[test]
fn a_decline_is_refused_in_every_phase_and_says_if_it_is_replayed() {
    let body = r#"{"error":{"type":"card_error","code":"card_declined","decline_code":"insufficient_funds"}}"#;
    let failure = Failure {
        code: "card_declined".to_owned(),
        message: "The payment method does not cover the amount.".to_owned(),
        provider_code: Some("insufficient_funds".to_owned()),
        advice: Advice::UseAnotherPaymentMethod,
    };
    for phase in PHASES {
        for replayed in [false, true] {
            let pairs: &[_] = if replayed {
                &[("idempotent-replayed", "true")]
            } else {
                &[]
            };
            assert_eq!(
                answer_with(402, pairs, body, phase),
                Answer::Refused {
                    failure: failure.clone(),
                    replayed
                }
            );
        }
    }
}

#[test]
fn advice_and_message_follow_the_decline() {
    use Advice::{DoNotTryAgain, TryAgainLater, UseAnotherPaymentMethod};
    for (decline, ours, advice) in [
        ("generic_decline", "card_declined", UseAnotherPaymentMethod),
        ("do_not_honor", "card_declined", UseAnotherPaymentMethod),
        ("issuer_not_available", "card_declined", TryAgainLater),
        ("try_again_later", "card_declined", TryAgainLater),
        ("processing_error", "card_declined", TryAgainLater),
        (
            "authentication_required",
            "authentication_required",
            UseAnotherPaymentMethod,
        ),
        ("duplicate_transaction", "card_declined", DoNotTryAgain),
        ("fraudulent", "card_declined", DoNotTryAgain),
        ("stolen_card", "card_declined", DoNotTryAgain),
        ("pickup_card", "card_declined", DoNotTryAgain),
        ("from_the_future", "card_declined", UseAnotherPaymentMethod),
    ] {
        let body = format!(
            r#"{{"error":{{"type":"card_error","code":"card_declined","decline_code":"{decline}","message":"{decline}"}}}}"#
        );
        let failure = refusal(answer(402, &body, Phase::Execute));
        assert_eq!(
            (failure.code.as_str(), failure.advice),
            (ours, advice),
            "{decline}"
        );
        assert_eq!(failure.provider_code.as_deref(), Some(decline));
        for told in ["fraud", "stolen", "lost", "pick"] {
            assert!(!failure.message.contains(told), "{}", failure.message);
        }
    }
}

#[test]
fn the_networks_own_advice_counts_but_never_softens_a_hard_decline() {
    for (decline, network, advice) in [
        ("generic_decline", "try_again_later", Advice::TryAgainLater),
        ("generic_decline", "do_not_try_again", Advice::DoNotTryAgain),
        (
            "generic_decline",
            "confirm_card_data",
            Advice::UseAnotherPaymentMethod,
        ),
        ("stolen_card", "try_again_later", Advice::DoNotTryAgain),
    ] {
        let body = format!(
            r#"{{"error":{{"type":"card_error","code":"card_declined","decline_code":"{decline}","advice_code":"{network}"}}}}"#
        );
        assert_eq!(
            refusal(answer(402, &body, Phase::Execute)).advice,
            advice,
            "{decline} {network}"
        );
    }
}

#[test]
fn a_code_that_is_no_word_is_not_passed_on() {
    let failure = refusal(answer(
        402,
        &error("card_error", "<b> x", ""),
        Phase::Execute,
    ));
    assert_eq!(
        (failure.code.as_str(), failure.provider_code),
        ("declined", None)
    );
}
