"""The store over redis-py: one code path for a remote server, sentinels and the embedded one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from redis import asyncio as redis_asyncio
from redis import exceptions as redis_errors
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from rackpower_common.clock import BootClock, Clock
from rackpower_common.model.identity import GpuId, NodeName, Revision, Term
from rackpower_controller.store import scripts
from rackpower_controller.store.address import Direct, Embedded, Sentinels, StoreAddress, parse_address
from rackpower_controller.store.base import (
    EVENTS_LIMIT,
    POLICY_REVISIONS_LIMIT,
    EventRecord,
    Exposure,
    Fenced,
    LeadTaken,
    PolicyRecord,
    PolicyText,
    Store,
    StoreError,
)
from rackpower_controller.store.embedded import EmbeddedServer

T = TypeVar("T")

DEADLINE_S = 2.0
"""Default deadline of a call, in seconds; the controller's own deadline for raises is shorter."""

_RETRIES = 1  # a connection that died while idle is noticed at the first use; more would only eat the deadline

_HINTS: tuple[tuple[type[Exception], str], ...] = (
    (redis_errors.AuthenticationError, "check the user and password in the store's address"),
    (redis_errors.NoPermissionError, "allow the user the commands EVAL, HSET, XADD and the like on its keys"),
    (redis_errors.ReadOnlyError, "it is a replica: name the primary, or the sentinels"),
    (redis_errors.BusyLoadingError, "it is reading its data; wait"),
    (redis_errors.OutOfMemoryError, "raise its maxmemory; its policy must be noeviction"),
    (redis_errors.ConnectionError, "is the server running, and the address right?"),
)


class RedisStore:
    """A `Store` on a Redis-compatible server.

    Args:
        address: Where it is, for people.
        client: Opens the client, and behind it others that only need to be closed (sentinels'); called once.
        server: The embedded server behind it, None for a remote one.
        deadline_s: Seconds for every call.
        prefix: Start of every key; racks that share a server need different ones.
        clock: For the times of terms.
    """

    def __init__(
        self,
        address: str,
        client: Callable[[], Sequence[redis_asyncio.Redis]],
        *,
        server: EmbeddedServer | None = None,
        deadline_s: float = DEADLINE_S,
        prefix: str = "rackpower",
        clock: Clock | None = None,
    ) -> None:
        self._address = address
        self._open_client = client
        self._clients: Sequence[redis_asyncio.Redis] = ()
        self._server = server
        self._deadline_s = deadline_s
        self._prefix = prefix
        self._clock = clock if clock is not None else BootClock()

    @property
    def address(self) -> str:
        """Return where the store is, without secrets."""
        return self._address

    async def ensure(self) -> None:
        """Start an embedded server where none runs, then ping."""
        if self._server is not None:
            await self._server.ensure()
        await self._call(lambda client: cast(Awaitable[Any], client.ping()))

    async def take_term(self, instance: str, *, above: int, ttl_s: float, leader: str) -> Term:
        """Take the lead and a new term. The owner of an embedded folder waits for no dead predecessor's lead."""
        steal = "1" if self._server is not None else "0"
        arguments = (instance, above, round(ttl_s * 1000), leader, f"{BootClock().unix_s():.3f}", steal)
        answer = await self._script(scripts.TAKE_TERM, ("term", "leader"), *arguments)
        if answer[0] == "busy":
            remaining_s = max(int(answer[3]), 0) / 1000
            where = f" at {answer[2]}" if answer[2] else ""
            raise LeadTaken(f"controller {answer[1][:8]}{where} leads", answer[2], remaining_s)
        return Term(int(answer[1]), instance)

    async def keep_lead(self, term: Term, *, ttl_s: float, leader: str) -> None:
        """Renew the lead by compare-and-set on the term."""
        arguments = (term.number, term.instance, round(ttl_s * 1000), leader)
        self._fenced(term, await self._script(scripts.KEEP_LEAD, ("term", "leader"), *arguments))

    async def give_up_lead(self, term: Term) -> None:
        """End our lead now."""
        await self._script(scripts.GIVE_UP_LEAD, ("leader",), term.instance)

    async def record_exposures(self, term: Term, number: int, exposures: Mapping[GpuId, Exposure], former: str) -> None:
        """Record exposures and former places by compare-and-set on the term."""
        pairs = [item for gpu, held in exposures.items() for item in (gpu, f"{held.power_w} {held.node}")]
        arguments = (term.number, term.instance, number, former, *pairs)
        answer = await self._script(scripts.RECORD_EXPOSURES, ("term", "exposures", "former"), *arguments)
        self._fenced(term, answer)
        if answer[0] == "stale":
            raise StoreError(f"exposure record {number} came after record {answer[1]} and was dropped")

    async def recall_exposures(self) -> dict[GpuId, Exposure]:
        """Return every recorded exposure; an entry that nobody of us wrote is left out."""
        key = self._key("exposures")
        entries = await self._call(lambda client: cast(Awaitable[Any], client.hgetall(key)))
        recalled = {}
        for gpu, value in entries.items():
            power_text, _, node = value.partition(" ")
            if power_text.isdigit() and node:
                recalled[GpuId(gpu)] = Exposure(int(power_text), NodeName(node))
        return recalled

    async def recall_former(self) -> str:
        """Return the recorded former places."""
        key = self._key("former")
        return str(await self._call(lambda client: client.get(key)) or "")

    async def add_policy(self, record: PolicyRecord) -> bool:
        """Append a policy revision."""
        files = json.dumps([[file.name, file.text] for file in record.files], ensure_ascii=False)
        arguments = (POLICY_REVISIONS_LIMIT, record.revision, record.author, f"{record.unix_s:.3f}", files)
        answer = await self._script(scripts.ADD_POLICY, ("policies",), *arguments)
        return bool(answer[0] == "ok")

    async def policies(self, limit: int = POLICY_REVISIONS_LIMIT) -> list[PolicyRecord]:
        """Return the newest revisions, newest first."""
        key = self._key("policies")
        entries = await self._call(lambda client: cast(Awaitable[Any], client.xrevrange(key, count=limit)))
        return [_policy_record(fields) for _, fields in entries]

    async def policy(self, revision: Revision) -> PolicyRecord | None:
        """Return the newest record of a revision."""
        return next((record for record in await self.policies() if record.revision == revision), None)

    async def seen_digest(self) -> str:
        """Return the digest of the policy files last put in force."""
        key = self._key("policy_files")
        return str(await self._call(lambda client: client.get(key)) or "")

    async def set_seen_digest(self, digest: str) -> None:
        """Remember the digest of the policy files put in force."""
        key = self._key("policy_files")
        await self._call(lambda client: cast(Awaitable[Any], client.set(key, digest)))

    async def add_events(self, events: Sequence[EventRecord]) -> None:
        """Append events in one round trip."""

        async def add(client: redis_asyncio.Redis) -> None:
            pipe = client.pipeline(transaction=False)
            for event in events:
                pipe.xadd(self._key("events"), _event_fields(event), maxlen=EVENTS_LIMIT, approximate=True)
            await pipe.execute()

        if events:
            await self._call(add)

    async def events(self, limit: int) -> list[EventRecord]:
        """Return the newest events, oldest first."""
        key = self._key("events")
        entries = await self._call(lambda client: cast(Awaitable[Any], client.xrevrange(key, count=limit)))
        return [_event_record(fields) for _, fields in reversed(entries)]

    async def close(self) -> None:
        """Close the connections and end an embedded server."""
        for client in self._clients:
            # nothing is lost by a connection that does not close in good order
            with contextlib.suppress(redis_errors.RedisError, OSError, TimeoutError):
                async with asyncio.timeout(self._deadline_s):
                    await client.aclose()
        self._clients = ()
        if self._server is not None:
            await self._server.stop()

    async def _script(self, script: str, keys: tuple[str, ...], *arguments: object) -> list[str]:
        names = [self._key(key) for key in keys]
        words = [str(argument) for argument in arguments]
        answer = await self._call(lambda client: client.eval(script, len(names), *names, *words))
        return [str(item) for item in answer]

    async def _call(self, ask: Callable[[redis_asyncio.Redis], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._deadline_s):
                if not self._clients:
                    self._clients = self._open_client()
                return await ask(self._clients[0])
        except (TimeoutError, redis_errors.TimeoutError) as error:
            detail = f"the store at {self._address} did not answer within {self._deadline_s:g} s"
            raise StoreError(detail) from error
        except (redis_errors.RedisError, OSError) as error:
            hint = next((hint for kind, hint in _HINTS if isinstance(error, kind)), "")
            raise StoreError(f"the store at {self._address} failed: {self._plain(error)}", hint) from error

    def _plain(self, error: Exception) -> str:
        """Return redis-py's message without the path of our own socket, which says nothing to people."""
        text = " ".join(str(error).split()) or type(error).__name__
        if self._server is not None and isinstance(error, (redis_errors.ConnectionError, OSError)):
            return "no answer on its socket"
        return text

    @staticmethod
    def _fenced(term: Term, answer: list[str]) -> None:
        if answer[0] == "fenced":
            newest = Term(int(answer[1]), answer[2])
            raise Fenced(f"term {term} is over: the store knows term {newest}", newest)

    def _key(self, name: str) -> str:
        return f"{{{self._prefix}}}:{name}"


def _policy_record(fields: Mapping[str, str]) -> PolicyRecord:
    files = tuple(PolicyText(name, text) for name, text in json.loads(fields["files"]))
    return PolicyRecord(Revision(fields["revision"]), fields["author"], float(fields["unix_s"]), files)


def _event_fields(event: EventRecord) -> dict[Any, Any]:
    words = {
        "id": event.id,
        "unix_s": f"{event.unix_s:.3f}",
        "severity": event.severity,
        "reason": event.reason,
        "message": event.message,
        "node": event.node,
        "gpu": event.gpu,
        "domain": event.domain,
    }
    return {name: word for name, word in words.items() if word}


def _event_record(fields: Mapping[str, str]) -> EventRecord:
    return EventRecord(
        id=fields.get("id", ""),
        unix_s=float(fields.get("unix_s", "0")),
        severity=fields.get("severity", "info"),
        reason=fields.get("reason", ""),
        message=fields.get("message", ""),
        node=fields.get("node", ""),
        gpu=fields.get("gpu", ""),
        domain=fields.get("domain", ""),
    )


def open_store(text: str, *, deadline_s: float = DEADLINE_S, prefix: str = "rackpower") -> Store:
    """Return the store at an address; nothing is connected or started until `ensure` or the first call.

    Args:
        text: The address, see `parse_address`.
        deadline_s: Seconds for every call.
        prefix: Start of every key.

    Raises:
        StoreError: The text names no store.
    """
    address = parse_address(text)
    server = EmbeddedServer(address.folder) if isinstance(address, Embedded) else None
    return RedisStore(
        str(address),
        lambda: _open_clients(address, server, deadline_s),
        server=server,
        deadline_s=deadline_s,
        prefix=prefix,
    )


def _open_clients(
    address: StoreAddress, server: EmbeddedServer | None, deadline_s: float
) -> tuple[redis_asyncio.Redis, ...]:
    options: dict[str, Any] = {
        "decode_responses": True,
        "retry": Retry(NoBackoff(), _RETRIES),
        "socket_connect_timeout": deadline_s,
        # every call has our own deadline; redis-py's makes it use wait_for, which on Python 3.11 loses cancellations
        "socket_timeout": None,
        "client_name": "rackpower-controller",
    }
    if server is not None:
        return (redis_asyncio.Redis(unix_socket_path=server.socket_path, **options),)
    if isinstance(address, Sentinels):
        login = {"username": address.username, "password": address.password}
        # one that does not answer must leave time for the others
        patience = {"socket_timeout": None, "socket_connect_timeout": deadline_s / (len(address.hosts) + 1)}
        sentinel = Sentinel(  # type: ignore[no-untyped-call]
            list(address.hosts), sentinel_kwargs=patience, **options, **login
        )
        return (sentinel.master_for(address.service, db=address.db), *sentinel.sentinels)
    if not isinstance(address, Direct):
        raise StoreError(f"the embedded store {address} has no server")
    try:
        return (redis_asyncio.Redis.from_url(address.url, **options),)
    except ValueError as error:
        raise StoreError(f"the store's address {address} cannot be used", str(error)) from error
