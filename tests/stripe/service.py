"""`payonce serve` at an address that speaks Stripe's API."""

import contextlib
import os
import subprocess
import tempfile
import threading
import time

from world import PAYONCE, call, free_port, until

SECRET = "whsec_localstripe"


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

    def refund(self, charge, key, body):
        """The same for a refund: its id, or the code of its refusal."""

        def sent():
            status, answer = self.ask("POST", f"/v1/charges/{charge}/refunds", key, body)
            assert status in (0, 200, 202, 409, 422, 503), answer
            return answer if status not in (0, 503) else None

        answer = until(f"{key} is answered", sent)
        return answer.get("code") or answer["id"]

    def ended(self, thing):
        """A charge or a refund, once it has ended."""
        kind = "refunds" if thing.startswith("rfd_") else "charges"

        def final():
            answer = self.ask("GET", f"/v1/{kind}/{thing}")[1]
            return answer if answer and answer["status"] != "in_progress" else None

        return until(f"{thing} ends", final)

    @contextlib.contextmanager
    def killed(self, times, dice):
        """It is killed that often while the block runs; yields what is set once that is over."""
        done = threading.Event()

        def kill():
            for _ in range(times):
                time.sleep(dice.uniform(0.2, 0.8))
                self.kill()
                self.start()
            done.set()

        killer = threading.Thread(target=kill)
        killer.start()
        yield done
        killer.join()
