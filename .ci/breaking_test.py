#!/usr/bin/env python3
"""Breaks the committed document in every way that breaking.py must refuse, and lets it grow in those it must not."""

import copy
import json
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
import breaking

DOCUMENT = json.loads((pathlib.Path(__file__).parents[1] / "openapi/openapi.json").read_text())


def schema(document, name):
    return document["components"]["schemas"][name]


def field(document, name, of):
    return schema(document, name)["properties"][of]


def create(document):
    return document["paths"]["/v1/charges"]["post"]


def found(change):
    new = copy.deepcopy(DOCUMENT)
    change(new)
    assert new != DOCUMENT, "nothing was changed"
    return breaking.breaks(DOCUMENT, new)


REFUSED = {
    "a field that is gone": lambda d: schema(d, "Charge")["properties"].pop("customer"),
    "a status that is gone": lambda d: create(d)["responses"].pop("200"),
    "an error's status that is gone": lambda d: create(d)["responses"].pop("422"),
    "a new success": lambda d: create(d)["responses"].update({"201": create(d)["responses"]["202"]}),
    "a path that is gone": lambda d: d["paths"].pop("/v1/policy"),
    "a call that is gone": lambda d: d["paths"]["/v1/charges"].pop("get"),
    "another name of a method": lambda d: create(d).update(operationId="make_charge"),
    "another class of methods": lambda d: create(d).update(tags=["payments"]),
    "another schema": lambda d: create(d)["responses"]["200"]["content"]["application/json"].update(
        schema={"$ref": "#/components/schemas/Failure"}
    ),
    "a schema's name": lambda d: d["components"]["schemas"].pop("TimelineEvent"),
    "another media type": lambda d: create(d)["responses"]["422"].update(
        content={"application/json": create(d)["responses"]["422"]["content"]["application/problem+json"]}
    ),
    "a header of an answer that is gone": lambda d: create(d)["responses"]["200"]["headers"].pop("Idempotent-Replayed"),
    "a parameter that is gone": lambda d: create(d)["parameters"].pop(1),
    "a parameter that is asked for": lambda d: create(d)["parameters"][1].update(required=True),
    "a shorter key": lambda d: create(d)["parameters"][0]["schema"].update(maxLength=64),
    "another syntax of keys": lambda d: create(d)["parameters"][0]["schema"].update(pattern="^[a-z]+$"),
    "a field that is asked for": lambda d: schema(d, "CreateCharge")["required"].append("customer"),
    "a field that is no longer taken": lambda d: schema(d, "CreateCharge")["properties"].pop("reference"),
    "a lower bound on what is sent": lambda d: field(d, "CreateCharge", "amount").update(maximum=99),
    "a higher bound on what comes": lambda d: field(d, "Charge", "amount").update(maximum=10**15),
    "a longer word in an answer": lambda d: field(d, "Charge", "reference").update(maxLength=1000),
    "a field that may be absent": lambda d: schema(d, "Charge")["required"].remove("stage"),
    "another type": lambda d: field(d, "Charge", "version").update(type="string"),
    "null": lambda d: field(d, "Charge", "customer").update(type=["string", "null"]),
    "another format": lambda d: field(d, "Charge", "version").update(format="int64"),
    "a new value of a closed enum": lambda d: schema(d, "ChargeStatus")["enum"].append("expired"),
    "a value that is gone": lambda d: schema(d, "Money")["enum"].remove("unknown"),
    "an open value that is gone": lambda d: field(d, "Charge", "stage")["x-extensible-enum"].pop(),
    "an enum that is closed": lambda d: field(d, "Charge", "provider").update(enum=["stripe"]),
    "a field of a list's items": lambda d: schema(d, "TimelineEvent")["properties"].pop("actor"),
    "another scheme": lambda d: d["components"]["securitySchemes"]["api_key"].update(scheme="basic"),
    "a key that is asked for": lambda d: create(d).update(security=[{"api_key": ["write"]}]),
    "another value if left out": lambda d: next(
        each["schema"] for each in d["paths"]["/v1/charges"]["get"]["parameters"] if each["name"] == "limit"
    ).update(default=50),
}

ALLOWED = {
    "a new call": lambda d: d["paths"].update({"/v1/payouts": {"get": create(d)}}),
    "a new field of an answer": lambda d: schema(d, "Charge")["properties"].update(fee={"type": "integer"}),
    "a new field that is always there": lambda d: (
        schema(d, "Charge")["properties"].update(fee={"type": "integer"}),
        schema(d, "Charge")["required"].append("fee"),
    ),
    "a new field that may be sent": lambda d: schema(d, "CreateCharge")["properties"].update(note={"type": "string"}),
    "a new parameter": lambda d: create(d)["parameters"].append(
        {"name": "X-New", "in": "header", "schema": {"type": "string"}}
    ),
    "a new open value": lambda d: field(d, "Charge", "stage")["x-extensible-enum"].append("expired"),
    "a new error": lambda d: create(d)["responses"].update({"402": create(d)["responses"]["422"]}),
    "a new header of an answer": lambda d: create(d)["responses"]["200"]["headers"].update(
        {"X-New": {"schema": {"type": "string"}}}
    ),
    "a higher bound on what is sent": lambda d: field(d, "CreateCharge", "amount").update(maximum=10**15),
    "a field that may be left out": lambda d: schema(d, "CreateCharge")["required"].remove("currency"),
    "other words": lambda d: field(d, "Charge", "stage").update(description="Where it is."),
    "a new schema": lambda d: d["components"]["schemas"].update(Payout={"type": "object"}),
}


class Breaking(unittest.TestCase):
    def test_what_breaks_a_client_is_refused(self):
        for what, change in REFUSED.items():
            with self.subTest(what):
                self.assertTrue(found(change))

    def test_growth_is_not(self):
        for what, change in ALLOWED.items():
            with self.subTest(what):
                self.assertEqual(found(change), [])


if __name__ == "__main__":
    unittest.main()
