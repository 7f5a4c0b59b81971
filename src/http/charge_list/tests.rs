use super::*;
use time::macros::datetime;

const MERCHANT: MerchantId = MerchantId::from_uuid(Uuid::from_u128(7));

fn read(query: &str) -> Asked {
    Asked::read(Some(query), MERCHANT).unwrap_or_else(|error| panic!("{query}: {error:?}"))
}

/// The problem as it goes out, without the frame.
fn faults(query: &str) -> Vec<(String, String)> {
    use super::super::problem::Place;
    let error = Asked::read(Some(query), MERCHANT).unwrap_err();
    assert_eq!(error.code().as_str(), "invalid_parameter");
    let told = error.faults().iter().map(|fault| match &fault.place {
        Place::Parameter(name) => (name.to_string(), fault.rule.to_owned()),
        Place::Pointer(_) | Place::Header(_) => panic!("a parameter"),
    });
    told.collect()
}

#[test]
fn without_parameters_everything_is_listed() {
    let all = read("");
    assert_eq!(all, Asked::read(None, MERCHANT).unwrap());
    assert_eq!(all.stages, Stage::ALL);
    assert_eq!((all.limit, all.from), (20, EARLIEST));
    assert_eq!(all.below, (LATEST, Uuid::nil()));
}

#[test]
fn a_status_is_its_stages_and_a_stage_narrows_it() {
    assert_eq!(
        read("status=failed").stages,
        [Stage::Failed, Stage::Canceled]
    );
    assert_eq!(read("status=completed").stages, [Stage::Succeeded]);
    assert_eq!(read("status=in_progress").stages.len(), 4);
    assert_eq!(
        read("status=failed&stage=canceled").stages,
        [Stage::Canceled]
    );
    assert_eq!(read("status=failed&stage=succeeded").stages, []);
}

#[test]
fn times_are_read_with_their_offset_and_rounded_up_to_what_charges_have() {
    for (text, at) in [
        ("2026-11-29T20:15:00Z", datetime!(2026-11-29 20:15 UTC)),
        (
            "2026-11-29T21:15:00%2B01:00",
            datetime!(2026-11-29 20:15 UTC),
        ),
        (
            "2026-11-29T20:15:00.104233Z",
            datetime!(2026-11-29 20:15:00.104233 UTC),
        ),
        (
            "2026-11-29T20:15:00.1042330001Z",
            datetime!(2026-11-29 20:15:00.104233 UTC),
        ),
        (
            "2026-11-29T20:15:00.104233001Z",
            datetime!(2026-11-29 20:15:00.104234 UTC),
        ),
    ] {
        assert_eq!(read(&format!("created_from={text}")).from, at, "{text}");
        assert_eq!(
            read(&format!("created_before={text}")).below.0,
            at,
            "{text}"
        );
    }
    for bad in [
        "",
        "2026-11-29",
        "1764447300",
        "2026-11-29T20:15:00",
        "2026-11-29T21:15:00+01:00",
        "2026-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00%2B23:59",
        "9999-12-31T23:59:59.9999999Z",
    ] {
        let told = faults(&format!("created_from={bad}"));
        assert_eq!(
            told,
            [("created_from".to_owned(), "time".to_owned())],
            "{bad}"
        );
    }
}

#[test]
fn bad_values_are_named_all_at_once_and_with_what_is_unknown() {
    let told = faults(
        "status=paid&stage=SUCCEEDED&reference=&idempotency_key=a%20b&provider_charge_id=pi/1\
         &created_from=2026-01-02T00:00:00Z&created_before=2026-01-01T00:00:00Z&limit=0&cursor=x&staus=failed",
    );
    let told: Vec<(&str, &str)> = told.iter().map(|(name, rule)| (&**name, &**rule)).collect();
    assert_eq!(
        told,
        [
            ("staus", "unknown_parameter"),
            ("status", "word"),
            ("stage", "word"),
            ("reference", "text"),
            ("idempotency_key", "syntax"),
            ("provider_charge_id", "syntax"),
            ("created_from", "range"),
            ("limit", "range"),
            ("cursor", "cursor"),
        ]
    );
}

#[test]
fn limits_are_1_to_100() {
    assert_eq!((read("limit=1").limit, read("limit=100").limit), (1, 100));
    for bad in ["0", "101", "999", "-1", "+5", "1.0", "", "ten", "0020"] {
        assert_eq!(faults(&format!("limit={bad}")).len(), 1, "{bad}");
    }
}

#[test]
fn a_cursor_goes_with_its_filters_and_any_limit() {
    let first = read("status=failed&limit=2&created_before=2026-01-01T00:00:00Z");
    let place = Cursor {
        created_at: datetime!(2025-06-01 00:00 UTC),
        id: Uuid::from_u128(1),
    };
    let cursor = place.encode(first.list);
    let filters = "status=failed&created_before=2026-01-01T00:00:00.000Z";
    let next = read(&format!("cursor={cursor}&limit=50&{filters}"));
    assert_eq!(next.below, (place.created_at, place.id));
    for other in [
        "",
        "status=failed",
        "status=completed&created_before=2026-01-01T00:00:00Z",
    ] {
        let told = faults(&format!("cursor={cursor}&{other}"));
        assert_eq!(
            told,
            [("cursor".to_owned(), "cursor".to_owned())],
            "{other}"
        );
    }
}
