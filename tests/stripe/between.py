"""Stands between payonce and localstripe, which refuses some parameters that Stripe takes, and shows an intent without what has
been received and with an action for Stripe's JavaScript alone, and has no `/v1/account`: takes the first out and counts them,
shows the second as Stripe does to who gave a `return_url`, and answers the third itself. Nothing else is changed; where that is asked for, answers come late or not at all."""

import collections
import http.client
import json
import socket
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# It confirms every method in one way, keeps no description and no reason, and lists everything.
UNKNOWN = {
    "/v1/payment_intents": {"description", "automatic_payment_methods"},
    "/confirm": {"return_url", "off_session", "error_on_requires_action"},
    "/v1/refunds": {"reason"},
    "GET": {"created"},
}


# In seconds, and the part of all.
LATE = 0.4
LOST = 0.2


def gone(connection):
    """Whether nobody is left to hear the answer."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def as_stripe_shows(value):
    if isinstance(value, dict) and value.get("object") == "payment_intent":
        moved = [charge["amount"] for charge in value["charges"]["data"] if charge["status"] == "succeeded" and charge["captured"]]
        value["amount_received"] = sum(moved)
        if value["next_action"]:
            url = f"https://hooks.stripe.example/{value['id']}"
            value["next_action"] = {"type": "redirect_to_url", "redirect_to_url": {"url": url}}
    elif isinstance(value, dict) and value.get("object") == "list":
        value["data"] = [as_stripe_shows(item) for item in value["data"]]
    return value


class Server(ThreadingHTTPServer):
    # The default of 5 lets connections time out on a busy machine.
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, *_):
        """Whoever is killed resets its connections."""


class Between:
    """`left_out` counts what was taken out, by parameter; `seen` what was asked, by call; `lost` and `unheard` the answers that
    never arrived, by chance and because whoever asked was killed."""

    def __init__(self, port):
        self.left_out = collections.Counter()
        self.seen = collections.Counter()
        self.troubled, self.dice = "", None
        self.lost = self.unheard = 0
        self.server = Server(("127.0.0.1", 0), self.handler(port))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def trouble(self, path, dice):
        """From now on answers to a POST there are late by up to `LATE`, and a part of them gets lost."""
        self.troubled, self.dice = path, dice
        self.lost = self.unheard = 0

    def answers(self, handler, path):
        """Whether it does, after its trouble."""
        if handler.command != "POST" or path != self.troubled:
            return True
        time.sleep(self.dice.uniform(0, LATE))
        if gone(handler.connection):
            self.unheard += 1
            return False
        lost = self.dice.random() < LOST
        self.lost += lost
        return not lost

    def strip(self, text, unknown):
        kept = []
        for name, value in urllib.parse.parse_qsl(text, keep_blank_values=True):
            if name.split("[")[0] in unknown:
                self.left_out[name] += 1
            else:
                kept.append((name, value))
        return urllib.parse.urlencode(kept)

    def handler(between, port):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self):
                path, _, query = self.path.partition("?")
                last = path.rsplit("/", 1)[-1]
                between.seen[f"{self.command} {'{id}' if last.startswith('pi_') else last}"] += 1
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                unknown = UNKNOWN["/confirm"] if last == "confirm" else UNKNOWN.get(path, set())
                body, query = between.strip(body, unknown), between.strip(query, UNKNOWN["GET"])
                if path == "/v1/account":
                    self.tell(200, "application/json", json.dumps({"id": "acct_localstripe", "object": "account"}).encode())
                    return
                upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                headers = {
                    "authorization": self.headers.get("authorization", ""),
                    "content-type": "application/x-www-form-urlencoded",
                }
                upstream.request(self.command, f"{path}?{query}" if query else path, body or None, headers)
                answer = upstream.getresponse()
                text = answer.read()
                if not between.answers(self, path):
                    self.close_connection = True
                    return
                if answer.status == 200:
                    text = json.dumps(as_stripe_shows(json.loads(text))).encode()
                self.tell(answer.status, answer.headers.get("content-type", ""), text)

            def tell(self, status, kind, text):
                try:
                    self.send_response(status)
                    self.send_header("content-type", kind)
                    self.send_header("content-length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
                except OSError:
                    # Whoever asked was killed.
                    self.close_connection = True

            do_GET = do_POST = pass_on

            def log_message(self, *_):
                pass

        return Handler
