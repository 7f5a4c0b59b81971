"""Where the services are, and what the stub answers for which id."""

import os

PAYONCE_URL = os.environ["PAYONCE_URL"]
STUB_URL = os.environ["STUB_URL"]
KEY = os.environ["IDEMPOTENCY_KEY"]
API_KEY = "po_dev_key"

LATER_CHARGE, PROXY_503, EMPTY_404, LATER_PROBLEM, TEAPOT_418 = (
    "chg_" + "0" * 31 + digit for digit in "12345"
)


def raised(kind, call, *args, **kwargs):
    """The exception of that kind; anything else, an answer too, fails."""
    try:
        answer = call(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"answered: {answer!r}")
