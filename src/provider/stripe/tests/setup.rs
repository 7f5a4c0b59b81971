//! Keys and settings.

use super::*;

#[test]
fn a_secret_key_tells_its_mode_and_never_itself() {
    for (text, live) in [
        ("sk_live_a1", true),
        ("rk_live_a1", true),
        ("sk_test_a1", false),
        ("rk_test_a1", false),
    ] {
        let key = SecretKey::parse(text).unwrap();
        assert_eq!(key.live(), live);
        assert!(!format!("{key} {key:?} {:?}", key.bearer()).contains("a1"));
    }
    for text in [
        "",
        "sk_live_",
        "pk_test_a1",
        "sk_test_a 1",
        "sk_test_a\n",
        " sk_test_a",
    ] {
        assert_eq!(SecretKey::parse(text), Err(InvalidSecretKey), "{text:?}");
    }
}

#[test]
fn bad_settings_are_refused_and_good_ones_make_the_profile() {
    for base_url in [
        "",
        "api.stripe.com",
        "ftp://a",
        "https://u:p@a",
        "https://a?b",
        "https://a#b",
    ] {
        let refused = Stripe::new(settings(base_url));
        assert!(matches!(refused, Err(StripeError::BaseUrl)), "{base_url}");
    }
    let live = |base_url| {
        Stripe::new(StripeSettings {
            secret_key: SecretKey::parse("sk_live_a").unwrap(),
            ..settings(base_url)
        })
    };
    assert!(matches!(
        live("http://api.stripe.com"),
        Err(StripeError::LiveKeyInTheClear)
    ));
    let stripe = live("https://api.stripe.com/").unwrap();
    assert_eq!(
        stripe.intents.as_str(),
        "https://api.stripe.com/v1/payment_intents"
    );
    assert!(stripe.profile().live);
    let behind_a_path = Stripe::new(settings("http://127.0.0.1:1/mock/")).unwrap();
    assert_eq!(
        behind_a_path.url(&object(), Some("confirm")).as_str(),
        "http://127.0.0.1:1/mock/v1/payment_intents/pi_1/confirm"
    );
}
