"""Programs that are started, asked and ended."""

import contextlib
import json
import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request

PAYONCE = os.environ["PAYONCE"]
PATIENCE = 120


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(what, ask):
    end = time.monotonic() + PATIENCE
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.02)


def exchange(method, url, headers=None, body=None):
    """The status, headers and text of an answer; 0 when there is none."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()
    except (OSError, urllib.error.URLError):
        return 0, None, None


def call(method, url, headers=None, body=None):
    """The status and the JSON, or text, of an answer; 0 when there is none."""
    status, _, text = exchange(method, url, headers, body)
    with contextlib.suppress(ValueError, TypeError):
        return status, json.loads(text)
    return status, text


def run(*arguments):
    """What a command prints."""
    done = subprocess.run([PAYONCE, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextlib.contextmanager
def started(command, **options):
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def simulator():
    """Its address."""
    command = [PAYONCE, "simulator", "--port", "0"]
    with started(command, stdout=subprocess.PIPE, text=True) as process:
        yield re.search(r"http://[^;\s]+", process.stdout.readline()).group()
