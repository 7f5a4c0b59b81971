"""What the document calls wrong and the service takes, as the contract says: no case is made of it."""

import schemathesis

OPTIONAL = ("customer", "return_url", "off_session", "reference", "description", "metadata", "events", "enabled", "reason")


@schemathesis.hook
def filter_case(context, case):
    # Absent by the contract; a nullable field would be a union in every generated client.
    optional = OPTIONAL + (("url",) if case.operation.method.upper() == "PATCH" else ())
    optional += ("amount",) if case.operation.path.endswith("/refunds") else ()
    null = isinstance(case.body, dict) and any(case.body.get(name, "") is None for name in optional)
    # The bare key and the same in quotation marks are one key; the pattern is that of the bare one.
    key = (case.headers or {}).get("Idempotency-Key")
    quoted = isinstance(key, str) and key.strip().startswith('"')
    return not (null or quoted)
