"""What a client meets on the way or after a later release: answers that the document of today does not tell.

GET /v1/charges/{id} goes by the last digit of the id; see world.py.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# New values of every open enum, and new fields in every object.
LATER_CHARGE = {
    "id": "chg_" + "0" * 31 + "1",
    "idempotency_key": "order-42",
    "version": 4,
    "status": "failed",
    "stage": "expired",
    "money": "not_moved",
    "amount": 1999,
    "amount_refunded": 0,
    "amount_disputed": 0,
    "currency": "usd",
    "payment_method": "pm_card_visa",
    "metadata": {},
    "live": False,
    "provider": "adyen",
    "attempts": 1,
    "failure": {
        "code": "mandate_revoked",
        "message": "The mandate was revoked.",
        "advice": "ask_the_customer",
        "network_code": "R0",
    },
    "created_at": "2026-11-29T20:15:00.104233Z",
    "updated_at": "2026-11-29T20:15:01.330021Z",
    "finished_at": "2026-11-29T20:15:01.330021Z",
    "expires": {"at": "2026-11-30T20:15:00.104233Z"},
}
LATER_PROBLEM = {
    "type": "/problems/charge_archived",
    "title": "The charge is archived",
    "status": 404,
    "detail": "ask for it in writing",
    "code": "charge_archived",
    "request_id": "req-7",
    "retry": "never",
    "archived_at": "2036-11-29T20:15:00.104233Z",
}
ANSWERS = {
    "1": (200, "application/json", json.dumps(LATER_CHARGE)),
    "2": (503, "text/html", "<html><body>503 Service Unavailable</body></html>"),
    "3": (404, None, ""),
    "4": (404, "application/problem+json", json.dumps(LATER_PROBLEM)),
    "5": (418, "text/plain", "a teapot"),
}


class Stub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        status, content_type, body = ANSWERS[self.path[-1]]
        body = body.encode()
        self.send_response(status)
        if content_type:
            self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
print(f"Stub http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
