"""`stripe-stateful-mock` and our simulator are asked the same under the same idempotency keys and must answer alike: status,
error, headers and how these relate, and the money that moved. Where they differ, `differences.py` says so and whom Stripe agrees
with; a difference that it does not name fails, and so does one that is named and gone."""

import collections
import concurrent.futures
import contextlib
import os
import subprocess
import sys
import threading

import stripe

import differences
from sides import SECRET, Mock, Simulator, facts
from world import call, simulator, started, until

# On loopback alone and at a port that is free, neither of which its own command can.
START = """
const log = require("loglevel");
log.setDefaultLevel("silent");
const server = require("stripe-stateful-mock").createExpressApp().listen(0, "127.0.0.1");
server.on("listening", () => console.log(server.address().port));
"""


class Talk:
    """One situation at one side; `status` is what Stripe answers, and so must the simulator."""

    def __init__(self, side, situation):
        self.side, self.situation = side, situation
        self.key, self.first, self.seen, self.told = f"{situation}-key", None, [], {}

    def ask(self, step, status, method, path, fields=None, key=None, secret=SECRET):
        key = key or self.key
        before = self.side.moved()
        answer = self.side.ask(method, path, fields, key, secret)
        self.first = self.first or answer
        told = facts(answer, key, self.first, self.seen)
        told["money moved"] = self.side.moved() - before
        self.told[f"{self.situation}/{step}"] = told
        self.seen.append(answer.request_id)
        if isinstance(self.side, Simulator):
            assert answer.status == status, (self.situation, step, answer.status, answer.text)
        return answer

    def post(self, step, status, request, **how):
        return self.ask(step, status, "POST", *request, **how)

    def paid(self, amount):
        """A charge that is none of the situation's answers."""
        return self.side.ask("POST", *self.side.charge(amount), f"{self.situation}-charge").id


def replay(talk):
    request = talk.side.charge(1999)
    talk.post("first", 200, request)
    talk.post("again", 200, request)
    talk.post("once more", 200, request)


def other_parameters(talk):
    talk.post("first", 200, talk.side.charge(1999))
    talk.post("another amount", 400, talk.side.charge(2000))
    talk.post("again", 200, talk.side.charge(1999))


def other_path(talk):
    charge = talk.post("first", 200, talk.side.charge(1999)).id
    talk.post("for a refund", 400, talk.side.refund(charge))


def declined(talk):
    request = talk.side.charge(1999, "chargeDeclined")
    talk.post("first", 402, request)
    talk.post("again", 402, request)


def too_small(talk):
    request = talk.side.charge(49)
    talk.post("first", 400, request)
    talk.post("again", 400, request)


def incomplete(talk):
    """Nothing was executed, so nothing is kept."""
    request = talk.side.charge(1999, currency=None)
    talk.post("first", 400, request)
    talk.post("again", 400, request)
    talk.post("completed", 200, talk.side.charge(1999))


def without_secret_key(talk):
    request = talk.side.charge(1999)
    talk.post("first", 401, request, secret=None)
    talk.post("with one", 200, request)


def rate_limited(talk):
    request = talk.side.charge(1999, talk.side.failing_once("429"))
    talk.post("first", 429, request)
    talk.side.mended()
    talk.post("again", 200, request)


def server_error(talk):
    request = talk.side.charge(1999, talk.side.failing_once("500"))
    talk.post("first", 500, request)
    talk.side.mended()
    talk.post("again", 500, request)


def refund(talk):
    charge = talk.paid(1999)
    request = talk.side.refund(charge, amount=500)
    talk.post("first", 200, request)
    talk.post("again", 200, request)
    talk.post("another amount", 400, talk.side.refund(charge, amount=501))


def refund_above_what_is_left(talk):
    request = talk.side.refund(talk.paid(1999), amount=2000)
    talk.post("first", 400, request)
    talk.post("again", 400, request)


def refunded_twice(talk):
    request = talk.side.refund(talk.paid(1999))
    talk.post("first", 200, request)
    talk.post("again", 200, request)
    talk.post("with another key", 400, request, key="refunded_twice-other-key")


def read(talk):
    """A key has no effect on a read."""
    path = talk.side.read(talk.paid(1999))
    talk.ask("first", 200, "GET", path)
    talk.ask("again", 200, "GET", path)


def long_key(talk):
    talk.post("256 characters", 400, talk.side.charge(1999), key="k" * 256)


SITUATIONS = [
    replay,
    other_parameters,
    other_path,
    declined,
    too_small,
    incomplete,
    without_secret_key,
    rate_limited,
    server_error,
    refund,
    refund_above_what_is_left,
    refunded_twice,
    read,
    long_key,
]


def compare(sides):
    """How many facts were compared, and those that differ."""
    compared, found = 0, {}
    for situation in SITUATIONS:
        told = []
        for side in sides:
            talk = Talk(side, situation.__name__)
            situation(talk)
            told.append(talk.told)
        mock, ours = told
        assert mock.keys() == ours.keys()
        for step, facts_of_ours in ours.items():
            for fact, value in facts_of_ours.items():
                compared += 1
                if mock[step][fact] != value:
                    found[step, fact] = mock[step][fact], value
    return compared, found


def never_in_flight(side):
    """The mock answers each request before it reads the next: it refuses none of many under one key."""
    request = side.charge(1999)
    with concurrent.futures.ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(lambda _: side.ask("POST", *request, "in-flight-key"), range(64)))
    statuses = collections.Counter(answer.status for answer in answers)
    assert statuses == {200: 64}, f"the mock knows keys in flight by now: compare them ({statuses})"
    assert len({answer.id for answer in answers}) == 1


def in_flight(side):
    """The simulator is held against what Stripe is known to answer, and against its library, which sends again what is answered
    so."""
    key, request, answers, before = "in-flight-key", side.charge(1999), [], side.moved()
    client = stripe.StripeClient(SECRET, base_addresses={"api": side.address}, max_network_retries=5)
    call("PUT", side.address + "/_sim/hold", body={"phase": "execute", "when": "before"})
    first = threading.Thread(target=lambda: answers.append(side.ask("POST", *request, key)))
    first.start()
    until("it is held", lambda: call("GET", side.address + "/_sim/hold")[1]["held"])

    answer = side.ask("POST", *request, key)
    told = facts(answer, key, answer, [])
    for fact, value in differences.IN_FLIGHT.items():
        assert told[fact] == value, (fact, told[fact], value)

    def refused():
        requests = call("GET", side.address + "/_sim/requests")[1]
        return [it for it in requests if it["headers"].get("idempotency-key") == key and it["status"] == 409]

    # The same request, in the library's words.
    fields = {"amount": 1999, "currency": "usd", "payment_method": "pm_card_visa", "confirm": True}
    fields |= {"payment_method_types": ["card"]}
    made = []
    library = threading.Thread(target=lambda: made.append(client.v1.payment_intents.create(fields, {"idempotency_key": key})))
    library.start()
    until("the library is refused too", lambda: len(refused()) > 1)
    assert side.moved() == before
    call("DELETE", side.address + "/_sim/hold")
    for thread in (first, library):
        thread.join(60)
    assert answers[0].id == made[0].id
    assert made[0].last_response.headers["Idempotent-Replayed"] == "true"
    assert side.moved() == before + 1999


@contextlib.contextmanager
def mock():
    """Its address."""
    with started(["node", "-e", START], cwd=os.environ["NODE_TOOLS"], stdout=subprocess.PIPE, text=True) as process:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"


def main():
    with mock() as theirs, simulator() as ours:
        theirs, ours = Mock(theirs), Simulator(ours)
        compared, found = compare([theirs, ours])
        unnamed, gone = differences.judge(found)
        for (step, fact), (of_mock, of_ours) in sorted(unnamed.items()):
            print(f"not named: {step}: {fact}: {of_mock!r} at the mock, {of_ours!r} at the simulator", file=sys.stderr)
        for step, fact in sorted(gone):
            print(f"named and gone: {step}: {fact}", file=sys.stderr)
        if unnamed or gone:
            raise SystemExit("the simulator and stripe-stateful-mock differ in other ways than differences.py says")
        never_in_flight(theirs)
        in_flight(ours)
    print(
        f"stripe-stateful-mock and the simulator: {compared} facts of {len(SITUATIONS)} situations compared, "
        f"{len(found)} differ as named"
    )
    print("not compared: a key in flight. The mock has none, of 64 requests at once; the simulator answers as Stripe is known to")


if __name__ == "__main__":
    main()
