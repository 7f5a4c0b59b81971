"""Stripe's own Python library at our simulator: what it sends is understood, what it gets it takes for Stripe's; it believes the
simulator's signatures, and payonce believes the library's."""

import json
import queue
import re
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import stripe

from world import PAYONCE, call, free_port, started, until

SECRET = "whsec_sdk"
DEV_SECRET = "whsec_payonce_dev"
UNCONFIRMED = {
    "amount": 1999,
    "currency": "usd",
    "payment_method": "pm_card_visa",
    "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
    "metadata": {"order": "42"},
}


def refused(kind, status, code, ask):
    try:
        ask()
    except stripe.StripeError as error:
        assert type(error) is kind, (type(error), error)
        assert error.http_status == status, error
        assert error.code == code, (error.code, error)
        return error
    raise AssertionError(f"no {kind.__name__}")


def objects(client):
    intents = client.v1.payment_intents
    made = intents.create(UNCONFIRMED)
    assert (made.status, made.amount_received, made.latest_charge) == ("requires_confirmation", 0, None)
    paid = intents.confirm(made.id)
    assert (paid.status, paid.amount_received) == ("succeeded", 1999)
    read = intents.retrieve(made.id)
    assert read.to_dict() == paid.to_dict()
    assert read.metadata["order"] == "42"

    canceled = intents.cancel(intents.create(UNCONFIRMED).id)
    assert canceled.status == "canceled" and canceled.canceled_at
    error = refused(stripe.InvalidRequestError, 400, "payment_intent_unexpected_state", lambda: intents.confirm(canceled.id))
    assert error.error.payment_intent.id == canceled.id

    declined = UNCONFIRMED | {"payment_method": "pm_card_chargeDeclined"}
    declined = intents.create(declined)
    error = refused(stripe.CardError, 402, "card_declined", lambda: intents.confirm(declined.id))
    assert error.error.decline_code == "generic_decline"
    assert error.error.payment_intent.status == "requires_payment_method"
    assert intents.retrieve(declined.id).last_payment_error.code == "card_declined"

    refused(stripe.InvalidRequestError, 404, "resource_missing", lambda: intents.retrieve("pi_none"))
    refused(stripe.InvalidRequestError, 400, "parameter_unknown", lambda: intents.create(UNCONFIRMED | {"amuont": 1}))
    found = [intent.id for intent in intents.list({"limit": 1}).auto_paging_iter()]
    assert found == [declined.id, canceled.id, made.id], found
    kinds = [event.type for event in client.v1.events.list({"limit": 100}).data]
    assert kinds[-2:] == ["payment_intent.succeeded", "payment_intent.created"], kinds


def keys(client, address):
    intents = client.v1.payment_intents
    under = {"idempotency_key": "sdk-1"}
    first, again = intents.create(UNCONFIRMED, under), intents.create(UNCONFIRMED, under)
    assert first.id == again.id
    assert "Idempotent-Replayed" not in first.last_response.headers
    assert again.last_response.headers["Idempotent-Replayed"] == "true"
    assert "Original-Request" in first.last_response.headers
    assert again.last_response.headers["Original-Request"] == first.last_response.request_id
    refused(stripe.IdempotencyError, 400, None, lambda: intents.create(UNCONFIRMED | {"amount": 1}, under))
    refused(stripe.IdempotencyError, 400, None, lambda: intents.confirm(first.id, {}, under))

    declined = intents.create(UNCONFIRMED | {"payment_method": "pm_card_chargeDeclined"})
    under = {"idempotency_key": "sdk-2"}
    for replayed in [None, "true"]:
        error = refused(stripe.CardError, 402, "card_declined", lambda: intents.confirm(declined.id, {}, under))
        assert error.headers.get("Idempotent-Replayed") == replayed

    call("PUT", address + "/_sim/hold", body={"phase": "prepare", "when": "after"})
    under = {"idempotency_key": "sdk-3"}
    held = threading.Thread(target=intents.create, args=(UNCONFIRMED, under))
    held.start()
    until("it is held", lambda: call("GET", address + "/_sim/hold")[1]["held"])
    # The library has no class for it, and keeps no code.
    error = refused(stripe.APIError, 409, None, lambda: intents.create(UNCONFIRMED, under))
    assert error.json_body["error"]["code"] == "idempotency_key_in_use"
    call("DELETE", address + "/_sim/hold")
    held.join()


def faults(client, address):
    intents = client.v1.payment_intents
    for fault, kind, status, code in [
        ("rate_limited", stripe.RateLimitError, 429, None),
        ("unauthorized", stripe.AuthenticationError, 401, None),
        ("error_500_before_charge", stripe.APIError, 500, None),
        ("drop_before_charge", stripe.APIConnectionError, None, None),
    ]:
        call("PUT", address + "/_sim/settings", body={"rates": {f"prepare.{fault}": 1.0}})
        refused(kind, status, code, lambda: intents.create(UNCONFIRMED))
    call("PUT", address + "/_sim/settings", body={})


def deliveries(client, address):
    """The library believes what the simulator signs, and not what somebody else does."""
    got = queue.Queue()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self):
            got.put((self.rfile.read(int(self.headers["content-length"])), self.headers["stripe-signature"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    endpoint = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{endpoint.server_port}/"
    assert call("PUT", address + "/_sim/webhook", body={"url": url, "secret": SECRET})[0] == 204
    made = client.v1.payment_intents.create(UNCONFIRMED)
    client.v1.payment_intents.confirm(made.id)
    kinds = set()
    for _ in range(3):
        payload, signature = got.get(timeout=30)
        event = client.construct_event(payload, signature, SECRET)
        kinds.add(event.type)
        subject = event.data.object
        assert made.id in (subject.id, getattr(subject, "payment_intent", None)), event
        try:
            client.construct_event(payload, signature, "whsec_stranger")
            raise AssertionError("a stranger's secret fits")
        except stripe.SignatureVerificationError:
            pass
    assert kinds == {"payment_intent.created", "charge.succeeded", "payment_intent.succeeded"}, kinds
    endpoint.shutdown()


def signatures(service):
    """payonce believes what the library signs, near the clock."""
    event = {
        "id": "evt_sdk", "object": "event", "type": "customer.created", "created": int(time.time()), "livemode": False,
        "data": {"object": {"id": "cus_1", "object": "customer"}},
    }
    payload = json.dumps(event, indent=2)
    for ago, secret, status in [(0, DEV_SECRET, 200), (0, "whsec_stranger", 400), (400, DEV_SECRET, 400), (-400, DEV_SECRET, 400)]:
        at = int(time.time()) - ago
        signature = stripe.WebhookSignature._compute_signature(f"{at}.{payload}", secret)
        headers = {"stripe-signature": f"t={at},v1={signature},v0={'0' * 64}", "content-type": "application/json"}
        answer = call("POST", service + "/webhooks/stripe", headers, payload.encode())
        assert answer[0] == status, (ago, secret, answer)


def main():
    port, simulator = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [PAYONCE, "dev", "--port", str(port), "--simulator-port", str(simulator), "--data-dir", folder + "/data"]
        with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command, stderr=log, stdout=log) as dev:
            service, address = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{simulator}"
            try:
                until("dev is ready", lambda: call("GET", service + "/readyz")[0] == 200)
                client = stripe.StripeClient("sk_test_sdk", base_addresses={"api": address}, max_network_retries=0)
                objects(client)
                keys(client, address)
                faults(client, address)
                signatures(service)
                deliveries(client, address)
            except BaseException:
                log.seek(0)
                print(re.sub(r"(?m)^", "dev: ", log.read()[-4000:]))
                raise
            finally:
                dev.terminate()
                dev.wait(30)
    print("stripe", stripe.VERSION, "takes the simulator for Stripe, and payonce its signatures")


if __name__ == "__main__":
    main()
