"""Where `stripe-stateful-mock` and our simulator answer otherwise, and what is known of Stripe. Every difference has its row, and
every row is a difference; the simulator's side is the one that Stripe is known to have, unless the row says that nobody knows."""

# What Stripe documents, and answers of its own that others have published.
KEYS = "https://docs.stripe.com/api/idempotent_requests"
ERRORS = "https://docs.stripe.com/error-low-level"
ERROR_TYPES = "https://docs.stripe.com/api/errors#errors-type"
REQUEST_IDS = "https://docs.stripe.com/api/request_ids"
REFLECTED = "https://github.com/stripe/stripe-mock/pull/77"
# A first answer: Original-Request is its own Request-Id, Stripe-Should-Retry is false. Of one whose parameters were not valid the
# former alone is known.
FIRST_ANSWER = "https://github.com/zulip/zulip/tree/main/corporate/tests/stripe_fixtures"
OTHER_PATH = "https://github.com/stripe/stripe-ruby/issues/598"
IN_USE = "https://github.com/beam-community/stripity-stripe/issues/564"
UNKNOWN = "not known of Stripe"

# Executed under a key, and kept under it.
EXECUTED = (
    "replay/first",
    "other_parameters/first",
    "other_path/first",
    "declined/first",
    "too_small/first",
    "incomplete/completed",
    "without_secret_key/with one",
    "rate_limited/again",
    "server_error/first",
    "refund/first",
    "refund_above_what_is_left/first",
    "refunded_twice/first",
    "refunded_twice/with another key",
)
REPLAYED = (
    "replay/again",
    "replay/once more",
    "other_parameters/again",
    "declined/again",
    "too_small/again",
    "server_error/again",
    "refund/again",
    "refund_above_what_is_left/again",
    "refunded_twice/again",
)
# Not executed.
REFUSED = (
    "other_parameters/another amount",
    "other_path/for a refund",
    "incomplete/first",
    "incomplete/again",
    "without_secret_key/first",
    "rate_limited/first",
    "refund/another amount",
    "long_key/256 characters",
)

# The fact, at the mock, at the simulator, in which steps, and how Stripe's side is known.
DIFFERENCES = [
    ("Idempotency-Key", "absent", "the key", EXECUTED + REPLAYED + REFUSED, REFLECTED),
    ("Stripe-Should-Retry", "absent", "false", EXECUTED + REPLAYED, ERRORS + "#should-retry, " + FIRST_ANSWER),
    ("Original-Request", "absent", "itself", (*EXECUTED, "incomplete/first"), FIRST_ANSWER),
    ("Request-Id", "absent", "new", ("other_parameters/another amount", "refund/another amount"), REQUEST_IDS),
    ("Request-Id", "absent", "new", ("without_secret_key/first",), REQUEST_IDS),
    # The mock keeps what fails validation.
    ("Idempotent-Replayed", "true", "absent", ("incomplete/again",), KEYS),
    ("Original-Request", "the first", "itself", ("incomplete/again",), KEYS),
    ("status", 400, 200, ("incomplete/completed",), KEYS),
    ("type", "idempotency_error", None, ("incomplete/completed",), KEYS),
    ("message", "the same parameters", None, ("incomplete/completed",), KEYS),
    ("money moved", 0, 1999, ("incomplete/completed",), KEYS),
    ("Request-Id", "absent", "new", ("incomplete/completed",), REQUEST_IDS),
    # The mock guesses, as its source says.
    ("type", "rate_limit_error", "invalid_request_error", ("rate_limited/first",), ERROR_TYPES),
    ("Stripe-Should-Retry", "absent", "true", ("rate_limited/first",), UNKNOWN),
    # The mock's keys are of one path each: it refunds.
    ("status", 200, 400, ("other_path/for a refund",), OTHER_PATH),
    ("type", None, "idempotency_error", ("other_path/for a refund",), ERROR_TYPES),
    ("message", None, "the same endpoint", ("other_path/for a refund",), OTHER_PATH),
    ("money moved", -1999, 0, ("other_path/for a refund",), OTHER_PATH),
    # The mock keeps reads.
    ("Idempotent-Replayed", "true", "absent", ("read/again",), KEYS),
    ("Original-Request", "the first", "absent", ("read/again",), KEYS),
    # The mock takes any key.
    ("status", 200, 400, ("long_key/256 characters",), KEYS),
    ("type", None, "invalid_request_error", ("long_key/256 characters",), UNKNOWN),
    ("message", None, "the key is too long", ("long_key/256 characters",), UNKNOWN),
    ("money moved", 1999, 0, ("long_key/256 characters",), KEYS),
]

# Status by `ERRORS`, type and code by `IN_USE`. Nobody has published its headers; Stripe's library sends again what asks for it, and
# a 409 that does not say.
IN_FLIGHT = {
    "status": 409,
    "type": "invalid_request_error",
    "code": "idempotency_key_in_use",
    "message": "in progress",
    "Idempotent-Replayed": "absent",
    "Idempotency-Key": "the key",
    "Stripe-Should-Retry": "true",
}


def judge(found):
    """Of the differences found, by step and fact, those that are not named; and those that are named and not found."""
    named = {}
    for fact, of_mock, of_ours, steps, _ in DIFFERENCES:
        for step in steps:
            assert (step, fact) not in named, (step, fact)
            named[step, fact] = of_mock, of_ours
    unnamed = {where: values for where, values in found.items() if named.get(where) != values}
    return unnamed, named.keys() - found.keys()
