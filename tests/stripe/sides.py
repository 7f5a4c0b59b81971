"""The two that are asked the same: `stripe-stateful-mock` in the words of Stripe's charges, our simulator in those of its
PaymentIntents; and what is told of an answer so that the two can be compared."""

import json
import re
import urllib.parse

from world import call, exchange

SECRET = "sk_test_sides"

# What a message means; its words may name amounts, ids and keys.
MESSAGES = [
    ("the same parameters", "can only be used with the same parameters"),
    ("the same endpoint", "can only be used for the same endpoint"),
    ("in progress", "another in-progress request"),
    ("declined", "card was declined"),
    ("too small", "(?i)amount must be at least"),
    ("a parameter is missing", "(?i)missing required param"),
    ("no secret key", "did not provide an API key"),
    ("too many requests", "(?i)too many requests|rate limit"),
    ("unknown", "(?i)unknown error"),
    ("more than is left", "greater than unrefunded amount"),
    ("already refunded", "has already been refunded"),
    ("the key is too long", "key is too long"),
]


class Answer:
    def __init__(self, status, headers, text):
        assert status, "no answer"
        self.status, self.headers, self.text = status, headers, text
        self.body = json.loads(text)

    @property
    def id(self):
        return self.body["id"]

    @property
    def request_id(self):
        return self.headers["Request-Id"]


class Side:
    def __init__(self, address):
        self.address = address

    def ask(self, method, path, fields=None, key=None, secret=SECRET):
        headers = {}
        if secret:
            headers["authorization"] = f"Bearer {secret}"
        if key:
            headers["idempotency-key"] = key
        body = None
        if method == "POST":
            headers["content-type"] = "application/x-www-form-urlencoded"
            body = urllib.parse.urlencode(fields or {}).encode()
        return Answer(*exchange(method, self.address + path, headers, body))

    def all(self, path):
        page = self.ask("GET", path + "?limit=100").body
        assert not page["has_more"]
        return page["data"]

    def failing_once(self, kind):
        """A card whose first charge fails so, whatever card it is."""
        raise NotImplementedError

    def mended(self):
        """Nothing fails any more but what cards say."""


class Mock(Side):
    name = "the mock"

    def charge(self, amount, card="visa", currency="usd"):
        return "/v1/charges", {"amount": amount, "source": f"tok_{card}"} | ({"currency": currency} if currency else {})

    def refund(self, charge, **fields):
        return "/v1/refunds", {"charge": charge} | fields

    def read(self, charge):
        return f"/v1/charges/{charge}"

    def failing_once(self, kind):
        # Its tokens can be chained; what stands behind makes a chain of its own.
        return f"{kind}|tok_visa|{kind}"

    def moved(self):
        return sum(charge["amount"] - charge["amount_refunded"] for charge in self.all("/v1/charges") if charge["paid"])


class Simulator(Side):
    name = "the simulator"
    faults = {"429": "rate_limited", "500": "error_500_before_charge"}

    def charge(self, amount, card="visa", currency="usd"):
        fields = {"amount": amount, "payment_method": f"pm_card_{card}", "confirm": "true", "payment_method_types[0]": "card"}
        return "/v1/payment_intents", fields | ({"currency": currency} if currency else {})

    def refund(self, charge, **fields):
        return "/v1/refunds", {"payment_intent": charge} | fields

    def read(self, charge):
        return f"/v1/payment_intents/{charge}"

    def failing_once(self, kind):
        self.set({"rates": {f"execute.{self.faults[kind]}": 1.0}})
        return "visa"

    def mended(self):
        self.set({})

    def set(self, settings):
        assert call("PUT", self.address + "/_sim/settings", body=settings)[0] == 200

    def moved(self):
        taken = sum(intent["amount_received"] for intent in self.all("/v1/payment_intents"))
        return taken - sum(refund["amount"] for refund in self.all("/v1/refunds"))


def facts(answer, key, first, seen):
    """What is compared of an answer: not what headers say but whether they are there and how they relate. `first` is the
    first answer under the key, `seen` the request ids so far."""
    error, headers = answer.body.get("error", {}), answer.headers
    message = error.get("message")

    def named(name, words, otherwise):
        value = headers[name]
        return "absent" if value is None else words.get(value, otherwise)

    return {
        "status": answer.status,
        "type": error.get("type"),
        "code": error.get("code"),
        "decline_code": error.get("decline_code"),
        "message": message and next((kind for kind, words in MESSAGES if re.search(words, message)), message),
        "body": "the first's" if answer.text == first.text else "its own",
        "Request-Id": named("Request-Id", dict.fromkeys(seen, "used before"), "new"),
        # The first answer is itself: the later entry of the two stands.
        "Original-Request": named("Original-Request", {first.request_id: "the first", answer.request_id: "itself"}, "another"),
        "Idempotent-Replayed": headers["Idempotent-Replayed"] or "absent",
        "Idempotency-Key": named("Idempotency-Key", {key: "the key"}, "another"),
        "Stripe-Should-Retry": headers["Stripe-Should-Retry"] or "absent",
    }
