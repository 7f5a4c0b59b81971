"""One purchase through the client that openapi-python-client makes."""

import httpx
from payonce_client import AuthenticatedClient
from payonce_client.api.charges import create_charge, get_charge, list_charges
from payonce_client.models import Charge, ChargeStatus, CreateCharge, Money, Problem, RetryAdvice

from world import *


def refuse_foreign(response):
    """It parses every error that the document names as a Problem, whoever sent it: what is not one ends here."""
    if response.is_error and response.headers.get("Content-Type") != "application/problem+json":
        response.raise_for_status()


def client_at(url):
    return AuthenticatedClient(
        base_url=url,
        token=API_KEY,
        timeout=httpx.Timeout(30),
        httpx_args={"event_hooks": {"response": [refuse_foreign]}},
        raise_on_unexpected_status=True,
    )


client = client_at(PAYONCE_URL)
purchase = CreateCharge(amount=1999, currency="usd", payment_method="pm_card_visa")

created = create_charge.sync_detailed(client=client, idempotency_key=KEY, body=purchase)
assert created.status_code == 202 and isinstance(created.parsed, Charge)
charge = created.parsed
assert charge.amount == 1999 and "Idempotent-Replayed" not in created.headers

replayed = create_charge.sync_detailed(client=client, idempotency_key=KEY, body=purchase)
assert replayed.status_code == 200 and replayed.parsed.id == charge.id
assert replayed.headers["Idempotent-Replayed"] == "true"

purchase.amount = 2999
reused = create_charge.sync_detailed(client=client, idempotency_key=KEY, body=purchase)
assert reused.status_code == 422 and isinstance(reused.parsed, Problem)
assert reused.parsed.code == "idempotency_key_reused" and reused.parsed.charge_id == charge.id
assert reused.parsed.retry == RetryAdvice.NEVER
assert [error.pointer for error in reused.parsed.errors] == ["#/amount"]

# Without a key nothing is sent; lengths and patterns are left to the service.
raised(TypeError, create_charge.sync_detailed, client=client, body=purchase)
long = create_charge.sync(client=client, idempotency_key="k" * 256, body=purchase)
assert isinstance(long, Problem) and long.code == "idempotency_key_invalid"

while charge.status == ChargeStatus.IN_PROGRESS:
    charge = get_charge.sync(charge.id, client=client, prefer="wait=20")
    assert isinstance(charge, Charge)
assert charge.status == ChargeStatus.COMPLETED and charge.money == Money.MOVED
assert not charge.failure and charge.finished_at.tzinfo

page = list_charges.sync(client=client, idempotency_key=KEY)
assert [each.id for each in page.data] == [charge.id] and not page.next_cursor

stub = client_at(STUB_URL)
later = get_charge.sync(LATER_CHARGE, client=stub)
assert later.stage == "expired" and later.provider == "adyen"
assert later.failure.code == "mandate_revoked" and later.failure.advice == "ask_the_customer"
problem = get_charge.sync(LATER_PROBLEM, client=stub)
assert isinstance(problem, Problem) and problem.code == "charge_archived"
for id, status in [(PROXY_503, 503), (EMPTY_404, 404), (TEAPOT_418, 418)]:
    foreign = raised(httpx.HTTPStatusError, get_charge.sync, id, client=stub)
    assert foreign.response.status_code == status
