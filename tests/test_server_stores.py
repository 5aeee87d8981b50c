"""The worked stores in `examples/stores` keep the contract, each on a real server of its own.

Skipped, with the reason, where a server or its Python package is missing; an error instead where
`CLAUDE_CLI_CLIENT_REQUIRE_SERVERS` is set, as it is in `.ci/run`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import servers

from claude_cli_client import SessionKey
from claude_cli_client._check_store import RULES
from claude_cli_client.testing import check_store

STORES = Path(__file__).resolve().parent.parent / "examples" / "stores"
ALL = [rule.name for rule in RULES]
KEY = SessionKey("-srv-app", "22a9c654-efbc-4159-8b73-9dc3799beefe")


def needed(name: str) -> Any:
    """The module; without it the test is skipped, or fails where it must not be."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        return missing(error)


def missing(error: Exception) -> Any:
    if os.environ.get("CLAUDE_CLI_CLIENT_REQUIRE_SERVERS"):
        raise error
    pytest.skip(f"{error}", allow_module_level=True)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`example(name)` imports one of the worked stores."""
    monkeypatch.syspath_prepend(STORES)
    return importlib.import_module


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    needed("redis")
    try:
        with servers.redis_server() as url:
            yield url
    except servers.MissingServerError as error:
        missing(error)


@pytest.fixture(scope="module")
def postgres_dsn() -> Iterator[str]:
    needed("psycopg_pool")
    try:
        with servers.postgres_server() as dsn:
            yield dsn
    except servers.MissingServerError as error:
        missing(error)


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    with needed("redis").Redis.from_url(redis_url, decode_responses=True) as made:
        yield made
        for name in made.scan_iter("claude-test-*", count=1000):
            made.delete(name)
        made.connection_pool.disconnect()


def options_of_pools() -> dict[str, dict[str, Any]]:
    """Pools as people make them."""
    return {
        "plain": {},
        "autocommit": {"autocommit": True},
        "rows that are dicts": {"row_factory": needed("psycopg.rows").dict_row},
    }


@pytest.fixture(params=["plain", "autocommit", "rows that are dicts"])
def pool(request: pytest.FixtureRequest, postgres_dsn: str) -> Iterator[Any]:
    options = options_of_pools()[request.param]
    pools = needed("psycopg_pool")
    with pools.ConnectionPool(postgres_dsn, min_size=1, max_size=16, open=True, kwargs=options) as made:
        yield made
        with made.connection() as connection:
            connection.execute("DROP TABLE IF EXISTS claude_entries, claude_transcripts")


def test_the_redis_store_keeps_the_contract(client, example):
    """All rules, the optional ones too; each with a prefix of its own."""
    module = example("redis_store")
    numbers = iter(range(1000))
    assert check_store(lambda: module.RedisStore(client, f"claude-test-{next(numbers)}")) == ALL


def test_the_redis_store_leaves_nothing_of_what_is_deleted(client, example):
    """After the last session of a project only the project's name is left."""
    store = example("redis_store").RedisStore(client, "claude-test-delete")
    for subpath in (None, "subagents/a", "subagents/b"):
        store.append(KEY._replace(subpath=subpath), [{"uuid": "1"}, {"type": "mode"}])
    store.delete(KEY)
    assert list(client.scan_iter("claude-test-delete:*")) == ["claude-test-delete:projects"]


def test_the_redis_store_needs_text(redis_url, example):
    """A client that gives bytes is refused when the store is made."""
    redis = needed("redis")
    with redis.Redis.from_url(redis_url) as client, pytest.raises(ValueError, match="decode_responses=True"):
        example("redis_store").RedisStore(client)


def test_the_postgres_store_keeps_the_contract(pool, example):
    """All rules, the optional ones too; the tables are emptied before each."""
    module = example("postgres_store")

    def make() -> Any:
        store = module.PostgresStore(pool)
        store.create_tables()
        with pool.connection() as connection:
            connection.execute("TRUNCATE claude_transcripts, claude_entries")
        return store

    assert check_store(make) == ALL


def test_the_postgres_store_stores_a_batch_as_a_whole(pool, example):
    """Where the second half of an append fails, the first is undone, and the row is free again."""
    module = example("postgres_store")
    store = module.PostgresStore(pool)
    store.create_tables()
    store.append(KEY, [{"uuid": "1"}])

    def fail(*_: Any) -> None:
        raise RecursionError("too deep")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "summarize", fail)
        with pytest.raises(RecursionError):
            store.append(KEY, [{"uuid": "2"}])
    store.append(KEY, [{"uuid": "3"}])
    assert store.load(KEY) == [{"uuid": "1"}, {"uuid": "3"}]


def test_it_is_the_file_that_is_documented():
    """The stores are files to copy: each says at its top what to install."""
    assert sorted(path.name for path in STORES.glob("*.py")) == ["postgres_store.py", "redis_store.py"]
    for path in STORES.glob("*.py"):
        assert "pip install" in path.read_text("utf-8").split('"""')[1]
    assert str(STORES) not in sys.path
