"""Sessions in Redis: a store for `Client(store=...)`, to copy and change.

    pip install redis

    import redis
    from claude_cli_client import Client
    from redis_store import RedisStore

    store = RedisStore(redis.Redis.from_url("redis://localhost", decode_responses=True))
    client = Client(store=store)

Needs Redis 6.2, and one that keeps what it has: `appendonly yes`, and `maxmemory-policy noeviction`.
Not for a Redis Cluster, where the keys of one transaction must be on one node.

What is where, with `claude` as the prefix, and PROJECT and SESSION as they are in a `SessionKey`:

    claude:entries:["PROJECT","SESSION",SUBPATH]   list    the entries as JSON, in order
    claude:uuids:["PROJECT","SESSION",SUBPATH]     set     the uuids that are in that list
    claude:subpaths:["PROJECT","SESSION"]          set     its subpaths
    claude:sessions:PROJECT                        zset    the sessions by the time of their last entry
    claude:summaries:PROJECT                       hash    their summaries, as JSON
    claude:projects                                set     the projects

A transcript is named by JSON, so no character in an id can make two names the same.

**How an append is one step.** It must look (which uuids are there? what is the summary?), think, and
write, and nobody may come between. Redis has two ways. A Lua script runs alone on the server; but
the summary is made by Python code, and Lua would read numbers as doubles. So this is the other way:
WATCH the list, read, and write in a MULTI block, which Redis refuses if the list was changed in
the meantime; then all is done again. Every append and delete changes the list, so watching it is
enough. That ends: whoever is refused was refused since somebody else was done. Normally one process
writes a transcript, and nobody is refused.
"""

# pyright: reportUnknownMemberType=false
# redis-py leaves types of some arguments open.

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import redis
from redis.client import Pipeline

from claude_cli_client import SessionKey
from claude_cli_client.store import StoredSession, StoredSummary, summarize


class _Names(NamedTuple):
    entries: str
    uuids: str
    subpaths: str
    sessions: str
    summaries: str


class RedisStore:
    """Safe for many threads and processes. The client is yours: its pool, its timeouts, its end."""

    def __init__(self, client: redis.Redis, prefix: str = "claude") -> None:
        if not client.get_encoder().decode_responses:
            raise ValueError("make the client with decode_responses=True: this store works with text")
        self._client = client
        self._prefix = prefix

    def append(self, key: SessionKey, entries: Sequence[Mapping[str, Any]]) -> None:
        """Add the entries that are not there yet."""
        if not entries:
            return
        names = self._names(key)

        def work(pipe: Pipeline) -> None:
            new = self._new(pipe, names, entries)
            if not new:
                return
            summary = cast("str | None", pipe.hget(names.summaries, key.session_id))
            seconds, microseconds = pipe.time()
            pipe.multi()  # from here on nothing is done before the end of this function
            pipe.rpush(names.entries, *(json.dumps(entry) for entry in new))
            if uuids := [uuid for entry in new if (uuid := _uuid(entry))]:
                pipe.sadd(names.uuids, *uuids)
            if key.subpath is not None:
                pipe.sadd(names.subpaths, key.subpath)
                return
            folded = summarize(json.loads(summary) if summary else None, new)
            pipe.hset(names.summaries, key.session_id, json.dumps(folded))
            # gt: a clock that was set back does not make the session older.
            pipe.zadd(names.sessions, {key.session_id: seconds * 1000 + microseconds // 1000}, gt=True)
            pipe.sadd(f"{self._prefix}:projects", key.project_key)

        self._client.transaction(work, names.entries)

    def load(self, key: SessionKey) -> list[dict[str, Any]] | None:
        """All entries, in the order of their arrival."""
        texts = cast("list[str]", self._client.lrange(self._names(key).entries, 0, -1))
        return [json.loads(text) for text in texts] or None

    def list_sessions(self, project_key: str | None) -> list[StoredSession]:
        """The sessions of a project, or of all."""
        return [
            {"project_key": project, "session_id": session, "mtime": int(mtime)}
            for project in self._projects(project_key)
            for session, mtime in self._times(project)
        ]

    def list_summaries(self, project_key: str | None) -> list[StoredSummary]:
        """The same with their summaries: two questions for each project, whatever the sessions hold."""
        return [
            {"project_key": project, "session_id": session, "mtime": int(mtime), "summary": json.loads(summary)}
            for project in self._projects(project_key)
            for summaries in [cast("dict[str, str]", self._client.hgetall(f"{self._prefix}:summaries:{project}"))]
            for session, mtime in self._times(project)
            if (summary := summaries.get(session))  # None: new since the first question
        ]

    def list_subkeys(self, project_key: str, session_id: str) -> list[str]:
        """The subpaths of a session."""
        return list(cast("set[str]", self._client.smembers(self._names(SessionKey(project_key, session_id)).subpaths)))

    def delete(self, key: SessionKey) -> None:
        """Remove a transcript; with a main key also its subpaths."""
        names = self._names(key)

        def work(pipe: Pipeline) -> None:
            subpaths: list[str | None] = [key.subpath]
            if key.subpath is None:
                subpaths += cast("set[str]", pipe.smembers(names.subpaths))
            pipe.multi()
            for subpath in subpaths:
                gone = self._names(key._replace(subpath=subpath))
                pipe.delete(gone.entries, gone.uuids)
            if key.subpath is not None:
                pipe.srem(names.subpaths, key.subpath)
                return
            pipe.delete(names.subpaths)
            pipe.zrem(names.sessions, key.session_id)
            pipe.hdel(names.summaries, key.session_id)

        # Also the list of subpaths: a subagent may be about to begin one.
        self._client.transaction(work, names.entries, names.subpaths)

    def _names(self, key: SessionKey) -> _Names:
        transcript = json.dumps(key, ensure_ascii=False)
        session = json.dumps(key[:2], ensure_ascii=False)
        return _Names(
            entries=f"{self._prefix}:entries:{transcript}",
            uuids=f"{self._prefix}:uuids:{transcript}",
            subpaths=f"{self._prefix}:subpaths:{session}",
            sessions=f"{self._prefix}:sessions:{key.project_key}",
            summaries=f"{self._prefix}:summaries:{key.project_key}",
        )

    def _projects(self, project_key: str | None) -> list[str]:
        if project_key is not None:
            return [project_key]
        return list(cast("set[str]", self._client.smembers(f"{self._prefix}:projects")))

    def _times(self, project: str) -> list[tuple[str, float]]:
        times = self._client.zrange(f"{self._prefix}:sessions:{project}", 0, -1, desc=True, withscores=True)
        return cast("list[tuple[str, float]]", times)

    def _new(self, pipe: Pipeline, names: _Names, entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The entries that are neither stored nor twice in the batch; those without a uuid are all new."""
        uuids = [uuid for entry in entries if (uuid := _uuid(entry))]
        known: set[str] = set()
        if uuids:
            there = cast("list[int]", pipe.smismember(names.uuids, uuids))
            known = {uuid for uuid, found in zip(uuids, there, strict=True) if found}
        new: list[dict[str, Any]] = []
        for entry in entries:
            uuid = _uuid(entry)
            if uuid is None or uuid not in known:
                new.append(dict(entry))
            if uuid is not None:
                known.add(uuid)
        return new


def _uuid(entry: Mapping[str, Any]) -> str | None:
    uuid = entry.get("uuid")
    return uuid if isinstance(uuid, str) and uuid else None
