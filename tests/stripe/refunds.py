"""Refunds at localstripe. It takes any amount, however often: that no more goes back than was paid, and each refund once, is
payonce's doing alone."""

import concurrent.futures
import random

REFUNDED = 60
KILLS = 10
AMOUNT = 1999
EXCEEDS = "refund_exceeds_charge"

# What is asked of a charge, in this order: in full; in parts; for more than there is; one part twice, under one key.
PLANS = [
    [{}],
    [{"amount": 500, "reason": "duplicate"}, {"amount": 700, "metadata": {"return": "7"}}, {}],
    [{"amount": 500}] * 5,
    [{"amount": 500, "reason": "requested_by_customer"}],
]
ACCEPTED = [[1999], [500, 700, 799], [500, 500, 500], [500]]


def at_stripe(stripe):
    """All refunds by intent, and those with a stamp of ours by stamp."""
    by_intent, by_stamp = {}, {}
    for refund in stripe.all("/v1/refunds"):
        by_intent.setdefault(refund["payment_intent"], []).append(refund)
        if stamp := refund["metadata"].get("payonce_refund_id"):
            by_stamp.setdefault(stamp, []).append(refund)
    return by_intent, by_stamp


def behind_our_back(service, stripe):
    """What was refunded at Stripe counts as soon as a refund of ours sees it."""
    charge = service.ended(service.charge("outside", "pm_card_visa"))
    intent = charge["provider_charge_id"]
    stripe.post("/v1/refunds", payment_intent=intent, amount=300)
    assert service.ended(service.refund(charge["id"], "outside-1", {"amount": 1000}))["status"] == "completed"
    assert service.ask("GET", f"/v1/charges/{charge['id']}")[1]["amount_refunded"] == 1300
    assert service.refund(charge["id"], "outside-2", {"amount": 700}) == EXCEEDS
    assert service.ended(service.refund(charge["id"], "outside-3", {}))["amount"] == 699
    assert sum(refund["amount"] for refund in at_stripe(stripe)[0][intent]) == AMOUNT


def killed_on_the_way(service, stripe, between, paid, seed):
    """Each client asks twice for everything, as after a lost answer; localstripe's own answers are late, and get lost too."""
    dice = random.Random(seed)
    charges = paid[:REFUNDED]
    assert len(charges) == REFUNDED
    between.trouble("/v1/refunds", random.Random(seed))
    with service.killed(KILLS, dice) as done, concurrent.futures.ThreadPoolExecutor(16) as clients:

        def give_back(number):
            # Over the whole time of the kills.
            done.wait(number * 0.1)
            charge, told = charges[number], []
            for part, body in enumerate(PLANS[number % len(PLANS)]):
                twice = [clients_of.submit(service.refund, charge, f"{charge}-{part}", body) for _ in range(2)]
                first, second = [asked.result() for asked in twice]
                assert first == second, (first, second)
                told.append(first)
            return told

        with concurrent.futures.ThreadPoolExecutor(32) as clients_of:
            told = list(clients.map(give_back, range(REFUNDED)))
    accepted = [[service.ended(it) for it in of_charge if it != EXCEEDS] for of_charge in told]
    assert between.lost and between.unheard, "no refund was made unheard"
    by_intent, by_stamp = at_stripe(stripe)
    stamps = set()
    for number, (charge, ended) in enumerate(zip(charges, accepted)):
        plan = number % len(PLANS)
        assert [refund["amount"] for refund in ended] == ACCEPTED[plan], (told[number], ended)
        assert len(told[number]) == len(PLANS[plan])
        for refund in ended:
            assert refund["status"] == "completed", refund
            found = [(it["id"], it["amount"]) for it in by_stamp[refund["id"]]]
            assert found == [(refund["provider_refund_id"], refund["amount"])], (refund, found)
            stamps.add(refund["id"])
        read = service.ask("GET", f"/v1/charges/{charge}")[1]
        moved = sum(refund["amount"] for refund in by_intent[read["provider_charge_id"]])
        assert moved == read["amount_refunded"] == sum(ACCEPTED[plan]) <= AMOUNT, (read, moved)
    assert len(by_stamp) == len(stamps) + 2, "two of ours were made before, and none that nobody asked for"
    print(
        f"{len(stamps)} refunds of {REFUNDED} charges, {KILLS} kills, {between.unheard} of localstripe's answers came to a process "
        f"that was gone and {between.lost} got lost: each refund was made once, none above its charge"
    )
