"""Charges and refunds through `payonce serve` at localstripe, which ignores idempotency keys: how many intents with one stamp
have succeeded, and how many refunds have one, shows how often money would have moved. The service is killed on the way, again
and again."""

import concurrent.futures
import json
import random
import subprocess
import sys
import tempfile
import urllib.parse

import refunds
from between import Between
from service import SECRET, Service
from world import call, free_port, run, started, until

CHARGES = 200
KILLS = 10
FORM = {"authorization": "Bearer sk_test_12345", "content-type": "application/x-www-form-urlencoded"}


class Stripe:
    """localstripe itself, behind our back."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def post(self, path, **fields):
        status, answer = call("POST", self.url + path, FORM, urllib.parse.urlencode(fields).encode())
        assert status == 200, (path, status, answer)
        return answer

    def all(self, path):
        found, after = [], ""
        while True:
            answer = call("GET", f"{self.url}{path}?limit=100{after}", FORM)[1]
            found += answer["data"]
            if not answer["has_more"]:
                return found
            after = "&starting_after=" + found[-1]["id"]

    def intents(self):
        """All of them by stamp."""
        by_stamp = {}
        for intent in self.all("/v1/payment_intents"):
            by_stamp.setdefault(intent["metadata"]["payonce_charge_id"], []).append(intent)
        return by_stamp

    def card(self, number):
        fields = {"type": "card", "card[number]": number, "card[exp_month]": 12, "card[exp_year]": 2030, "card[cvc]": 123}
        return self.post("/v1/payment_methods", **fields)["id"]

    def sepa(self, iban):
        billing = {"billing_details[name]": "A B", "billing_details[email]": "a@b.example"}
        return self.post("/v1/payment_methods", **{"type": "sepa_debit", "sepa_debit[iban]": iban} | billing)["id"]


def succeeded(intents):
    return [intent["id"] for intent in intents if intent["status"] == "succeeded"]


def check(stripe, charge):
    """One success where it says completed, none where it says failed, and then nothing that could still succeed."""
    intents = stripe.intents().get(charge["id"], [])
    paid = succeeded(intents)
    if charge["status"] == "completed":
        assert paid == [charge["provider_charge_id"]], (charge, intents)
    else:
        assert not paid, (charge, intents)
        stored = [intent for intent in intents if intent["id"] == charge.get("provider_charge_id")]
        assert all(intent["status"] == "canceled" for intent in stored), (charge, intents)


def each_kind(service, stripe):
    """What localstripe knows: a success, a decline, a debit that takes days, a customer who must authenticate."""
    charge = service.ended(service.charge("visa", "pm_card_visa"))
    assert charge["status"] == "completed", charge
    check(stripe, charge)

    charge = service.ended(service.charge("declined", "pm_card_chargeCustomerFail"))
    assert (charge["status"], charge["failure"]["code"]) == ("failed", "card_declined"), charge
    check(stripe, charge)

    # It processes for half a second and is told by webhook a second later; our own next look would be in five minutes.
    for number, (iban, status) in enumerate([("DE89370400440532013000", "completed"), ("DE62370400440532013001", "failed")]):
        charge = service.ended(service.charge(f"sepa-{number}", stripe.sepa(iban), currency="eur"))
        assert charge["status"] == status, charge
        check(stripe, charge)

    for number, (success, status) in enumerate([("true", "completed"), ("false", "failed")]):
        charge = service.charge(f"authentication-{number}", stripe.card("4000002500003155"), return_url="https://shop.example/back")
        intent = until("it waits", lambda: [i for i in stripe.intents().get(charge, []) if i["status"] == "requires_action"])[0]
        until("we know", lambda: service.stage(charge) == "requires_action")
        stripe.post(f"/v1/payment_intents/{intent['id']}/_authenticate", client_secret=intent["client_secret"], success=success)
        if status == "failed":
            # localstripe tells nobody of a failed authentication: the cancel asks.
            service.ask("POST", f"/v1/charges/{charge}/cancel")
        charge = service.ended(charge)
        assert charge["status"] == status, charge
        check(stripe, charge)


def killed_on_the_way(service, stripe, seed):
    methods = ["pm_card_visa", "pm_card_visa", "pm_card_visa", "pm_card_chargeCustomerFail"]
    with service.killed(KILLS, random.Random(seed)) as done, concurrent.futures.ThreadPoolExecutor(16) as clients:

        def buy(number):
            # Over the whole time of the kills.
            done.wait(number * 0.03)
            return service.charge(f"order-{number}", methods[number % len(methods)])

        charges = list(clients.map(buy, range(CHARGES)))
    ended = [service.ended(charge) for charge in charges]
    intents = stripe.intents()
    for number, charge in enumerate(ended):
        expected = "failed" if number % len(methods) == 3 else "completed"
        assert charge["status"] == expected, charge
        paid = succeeded(intents.get(charge["id"], []))
        assert paid == ([charge["provider_charge_id"]] if expected == "completed" else []), (charge, paid)
    several = sum(len(of_charge) > 1 for of_charge in intents.values())
    print(f"{CHARGES} charges, {KILLS} kills: {len(ended)} ended right, none paid twice; {several} had several intents")
    return [charge["id"] for charge in ended if charge["status"] == "completed"]


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    port = free_port()
    localstripe = [sys.executable, "-m", "localstripe", "--port", str(port), "--from-scratch"]
    with tempfile.TemporaryDirectory() as folder, started(localstripe, cwd=folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
        stripe = Stripe(port)
        until("localstripe listens", lambda: call("GET", stripe.url + "/v1/balance_transactions", FORM)[0])
        between = Between(port)
        service = Service(between.address)
        run("migrate")
        run("merchants", "create", "shop")
        service.token = run("api-keys", "create", "--merchant", "shop")
        hook = {"url": service.url + "/webhooks/stripe", "secret": SECRET}
        headers = {"content-type": "application/json"}
        assert call("POST", stripe.url + "/_config/webhooks/ours", headers, hook)[0] == 200
        service.start()
        try:
            each_kind(service, stripe)
            paid = killed_on_the_way(service, stripe, seed)
            refunds.behind_our_back(service, stripe)
            refunds.killed_on_the_way(service, stripe, between, paid, seed)
        except BaseException:
            service.log.seek(0)
            sys.stderr.write("".join(service.log.readlines()[-100:]))
            raise
        finally:
            service.kill()
        print("left out for localstripe:", json.dumps(between.left_out, sort_keys=True))
        print("calls:", json.dumps(between.seen, sort_keys=True))


if __name__ == "__main__":
    main()
