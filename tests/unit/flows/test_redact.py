"""Secrets are hidden, and what only sounds like one is not."""

from __future__ import annotations

import pytest

from flows.redact import HIDDEN, Redactor, hide, is_secret

SECRET = """password DB_PASSWORD api_key apikey aws_secret_access_key AWS_ACCESS_KEY_ID hf_token token client_secret
credentials private-key PREFECT_API_AUTH_STRING connection_string"""
HARMLESS = "tokens max_tokens tokenizer tokenize key keys keep author positive monkey"


@pytest.mark.parametrize("name", SECRET.split())
def test_named_like_a_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", HARMLESS.split())
def test_only_sounds_like_a_secret(name: str) -> None:
    assert not is_secret(name)


def test_nested_values_and_urls_are_hidden_and_the_rest_stays() -> None:
    params = {
        "ingest": {"source": "s3://me:hunter22@bucket/x", "api_key": "abc", "shard_rows": 5, "password": None},
        "secrets": [{"any": "thing"}],
    }
    assert hide(params) == {
        "ingest": {"source": f"s3://{HIDDEN}@bucket/x", "api_key": HIDDEN, "shard_rows": 5, "password": None},
        "secrets": [{"any": "thing"}],
    }
    assert params["ingest"]["api_key"] == "abc"  # type: ignore[call-overload]


def test_a_line_loses_known_secrets_wherever_they_stand() -> None:
    redact = Redactor({"ingest": {"api_key": "canary-1"}}, {"SOME_TOKEN": "canary-12", "HOME": "/somewhere/me"})
    assert redact("got canary-12, canary-1. in /somewhere/me") == f"got {HIDDEN}, {HIDDEN}. in /somewhere/me"
    assert redact("postgres://user:pass@host/db") == f"postgres://{HIDDEN}@host/db"


def test_short_values_do_not_blank_words() -> None:
    redact = Redactor({}, {"A_PASSWORD": "on"})
    assert redact("turned on") == "turned on"


def test_no_secrets_no_change() -> None:
    assert Redactor({}, {})("12:30 http://127.0.0.1:4200/api") == "12:30 http://127.0.0.1:4200/api"
