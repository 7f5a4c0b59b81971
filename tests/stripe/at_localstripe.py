"""Charges through `payonce serve` at localstripe, which ignores idempotency keys: how many intents with one stamp have
succeeded shows how often money would have moved. The service is killed on the way, again and again."""

import concurrent.futures
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from between import Between
from world import PAYONCE, call, free_port, run, started, until

CHARGES = 200
KILLS = 10
SECRET = "whsec_localstripe"
FORM = {"authorization": "Bearer sk_test_12345", "content-type": "application/x-www-form-urlencoded"}


class Service:
    """`payonce serve`, which is started again whenever it is gone."""

    def __init__(self, base_url):
        self.port = free_port()
        self.environment = os.environ | {
            "PAYONCE__HTTP__LISTEN": f"127.0.0.1:{self.port}",
            "PAYONCE__ADMIN__LISTEN": "off",
            "PAYONCE__PROVIDER__STRIPE__BASE_URL": base_url,
            "PAYONCE__PROVIDER__STRIPE__SECRET_KEY": "sk_test_12345",
            "PAYONCE__PROVIDER__STRIPE__WEBHOOK_SECRETS": SECRET,
            "PAYONCE__PROVIDER__STRIPE__TIMEOUT": "2s",
            "PAYONCE__PROVIDER__STRIPE__CONNECT_TIMEOUT": "500ms",
            "PAYONCE__WORKER__LEASE": "8s",
            "PAYONCE__WORKER__SLACK": "200ms",
            "PAYONCE__WORKER__COMPLETION_TIMEOUT": "500ms",
            "PAYONCE__WORKER__TAKE_BACK_INTERVAL": "200ms",
            "PAYONCE__WORKER__RETRY_CAP": "1s",
            # An event must let a job run long before it would by itself.
            "PAYONCE__WORKER__SLOW_BASE": "5m",
        }
        self.token = None
        self.process = None
        self.log = tempfile.TemporaryFile("w+")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        self.process = subprocess.Popen([PAYONCE, "serve"], env=self.environment, stderr=self.log)
        until("it is ready", lambda: call("GET", self.url + "/readyz")[0] == 200)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, method, path, key=None, body=None):
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        if key:
            headers["idempotency-key"] = key
        return call(method, self.url + path, headers, body)

    def charge(self, key, payment_method, **more):
        """Sends the same request until it is answered, as a client should."""
        body = {"amount": 1999, "currency": "usd", "payment_method": payment_method, "description": "order"} | more

        def sent():
            status, answer = self.ask("POST", "/v1/charges", key, body)
            assert status in (0, 200, 202, 503), answer
            return answer if status in (200, 202) else None

        return until(f"{key} is accepted", sent)["id"]

    def stage(self, charge):
        return (self.ask("GET", f"/v1/charges/{charge}")[1] or {}).get("stage")

    def ended(self, charge):
        def final():
            answer = self.ask("GET", f"/v1/charges/{charge}")[1]
            return answer if answer and answer["status"] != "in_progress" else None

        return until(f"{charge} ends", final)


class Stripe:
    """localstripe itself, behind our back."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def post(self, path, **fields):
        status, answer = call("POST", self.url + path, FORM, urllib.parse.urlencode(fields).encode())
        assert status == 200, (path, status, answer)
        return answer

    def intents(self):
        """All of them by stamp."""
        by_stamp, after = {}, ""
        while True:
            answer = call("GET", f"{self.url}/v1/payment_intents?limit=100{after}", FORM)[1]
            for intent in answer["data"]:
                by_stamp.setdefault(intent["metadata"]["payonce_charge_id"], []).append(intent)
            if not answer["has_more"]:
                return by_stamp
            after = "&starting_after=" + answer["data"][-1]["id"]

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
    dice = random.Random(seed)
    done = threading.Event()

    def kill():
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.2, 0.8))
            service.kill()
            service.start()
        done.set()

    killer = threading.Thread(target=kill)
    killer.start()
    methods = ["pm_card_visa", "pm_card_visa", "pm_card_visa", "pm_card_chargeCustomerFail"]

    def buy(number):
        # Over the whole time of the kills.
        done.wait(number * 0.03)
        return service.charge(f"order-{number}", methods[number % len(methods)])

    with concurrent.futures.ThreadPoolExecutor(16) as clients:
        charges = list(clients.map(buy, range(CHARGES)))
    killer.join()
    ended = [service.ended(charge) for charge in charges]
    intents = stripe.intents()
    for number, charge in enumerate(ended):
        expected = "failed" if number % len(methods) == 3 else "completed"
        assert charge["status"] == expected, charge
        paid = succeeded(intents.get(charge["id"], []))
        assert paid == ([charge["provider_charge_id"]] if expected == "completed" else []), (charge, paid)
    several = sum(len(of_charge) > 1 for of_charge in intents.values())
    print(f"{CHARGES} charges, {KILLS} kills: {len(ended)} ended right, none paid twice; {several} had several intents")


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
            killed_on_the_way(service, stripe, seed)
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
