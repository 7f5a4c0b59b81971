"""One purchase through the client that openapi-generator's `python` makes."""

import payonce_client as sdk
from pydantic import ValidationError

from world import *


def charges_at(url):
    return sdk.ChargesApi(sdk.ApiClient(sdk.Configuration(host=url, access_token=API_KEY)))


charges = charges_at(PAYONCE_URL)
purchase = sdk.CreateCharge(amount=1999, currency="usd", payment_method="pm_card_visa")

created = charges.create_charge_with_http_info(KEY, purchase)
assert created.status_code == 202
charge = created.data
assert charge.amount == 1999 and "idempotent-replayed" not in created.headers

replayed = charges.create_charge_with_http_info(KEY, purchase)
assert replayed.status_code == 200 and replayed.data.id == charge.id
assert replayed.headers["idempotent-replayed"] == "true"

purchase.amount = 2999
reused = raised(sdk.ApiException, charges.create_charge, KEY, purchase)
assert reused.status == 422 and isinstance(reused.data, sdk.Problem)
assert reused.data.code == "idempotency_key_reused" and reused.data.charge_id == charge.id
assert reused.data.retry == sdk.RetryAdvice.NEVER
assert [error.pointer for error in reused.data.errors] == ["#/amount"]

# Without a key, or with one that can't be, nothing is sent.
raised(ValidationError, charges.create_charge, create_charge=purchase)
raised(ValidationError, charges.create_charge, "k" * 256, purchase)
raised(ValidationError, sdk.CreateCharge, amount=0, currency="usd", payment_method="pm_card_visa")

while charge.status == sdk.ChargeStatus.IN_PROGRESS:
    charge = charges.get_charge(charge.id, prefer="wait=20")
assert charge.status == sdk.ChargeStatus.COMPLETED and charge.money == sdk.Money.MOVED
assert charge.failure is None and charge.finished_at.tzinfo

page = charges.list_charges(idempotency_key=KEY)
assert [each.id for each in page.data] == [charge.id] and page.next_cursor is None

stub = charges_at(STUB_URL)
later = stub.get_charge(LATER_CHARGE)
assert later.stage == "expired" and later.provider == "adyen"
assert later.failure.code == "mandate_revoked" and later.failure.advice == "ask_the_customer"
problem = raised(sdk.ApiException, stub.get_charge, LATER_PROBLEM)
assert problem.status == 404 and problem.data.code == "charge_archived"
for id, status in [(PROXY_503, 503), (EMPTY_404, 404), (TEAPOT_418, 418)]:
    foreign = raised(sdk.ApiException, stub.get_charge, id)
    assert foreign.status == status and foreign.data is None
