"""The asyncio client: every command, tasks that share it, cancelled calls, TLS, types."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import greenstalk
import pytest
import trustme
from client.workers import serving_unix
from processes import eventually
from server.tls.tls_servers import Files, serving
from servers import Server, ours

from beanstalkd_py import errors
from beanstalkd_py.client import AsyncClient, Client, async_connection

Use = Callable[[AsyncClient[str]], Awaitable[None]]


def run(server: Server, tube: str, use: Use) -> None:
    """Run a coroutine with a client of the tube."""

    async def main() -> None:
        async with connect(server, tube) as client:
            await use(client)

    asyncio.run(main())


def connect(server: Server, tube: str) -> AsyncClient[str]:
    return AsyncClient(("127.0.0.1", server.port), use=tube, watch=tube)


def test_put_with_options(server: Server, name: str) -> None:
    async def use(client: AsyncClient[str]) -> None:
        puts = [client.put("one", unique="k", expires=1000, delay_ms=5500) for _ in range(10)]
        first, *others = await asyncio.gather(*puts)
        assert others == [first] * 9
        assert (await client.stats_job(first))["delay"] == 6

    run(server, name, use)


def test_the_life_of_a_job(any_server: Server, name: str) -> None:
    async def use(client: AsyncClient[str]) -> None:
        put = await client.put("hello", priority=5, ttr=100)
        job = await client.reserve(timeout=0)
        assert (job.id, job.body) == (put, "hello")
        await client.touch(job)
        await client.release(job, priority=6, delay=100)
        assert (await client.stats_job(job))["state"] == "delayed"
        assert (await client.peek_delayed()).id == put
        assert await client.kick(10) == 1
        await client.bury(await client.reserve(timeout=0), priority=7)
        assert (await client.peek_buried()).id == put
        await client.kick_job(job)
        assert (await client.peek_ready()).body == "hello"
        assert (await client.peek(put)).body == "hello"
        stats = await client.stats_job(put)
        assert (stats["pri"], stats["kicks"], stats["tube"]) == (7, 2, name)
        await client.delete(await client.reserve_job(put))
        with pytest.raises(greenstalk.NotFoundError):
            await client.peek(put)

    run(any_server, name, use)


def test_tubes(any_server: Server, name: str) -> None:
    async def use(client: AsyncClient[str]) -> None:
        assert (await client.using(), await client.watching()) == (name, [name])
        assert await client.watch(f"{name}.b") == 2
        assert await client.ignore(name) == 1
        with pytest.raises(greenstalk.NotIgnoredError):
            await client.ignore(f"{name}.b")
        assert {"default", name, f"{name}.b"} <= set(await client.tubes())
        await client.use(f"{name}.b")
        await client.put("held back")
        await client.pause_tube(f"{name}.b", 100)
        assert (await client.stats_tube(f"{name}.b"))["pause"] == 100
        with pytest.raises(greenstalk.TimedOutError):
            await client.reserve(timeout=0)

    run(any_server, name, use)


def test_both_clients_return_the_same_statistics(any_server: Server, name: str) -> None:
    async def use(client: AsyncClient[str]) -> None:
        job = await client.put("x")
        with Client(("127.0.0.1", any_server.port)) as other:
            assert await client.stats_job(job) == other.stats_job(job)
            assert await client.stats_tube(name) == other.stats_tube(name)
            stats = await client.stats()
            assert list(stats) == list(other.stats())
            assert isinstance(stats["version"], str)
            assert stats["max-job-size"] == 65535

    run(any_server, name, use)


def test_both_clients_have_the_same_methods() -> None:
    def methods(of: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(of, inspect.isfunction)
            if not name.startswith("_")
        }

    asynchronous = methods(AsyncClient)
    del asynchronous["connect"]
    assert asynchronous == methods(Client)
    for name in asynchronous:
        method = getattr(AsyncClient, name)
        assert inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method), name


def test_extensions(server: Server, name: str) -> None:
    async def use(client: AsyncClient[str]) -> None:
        assert {
            "list-jobs",
            "truncate",
            "wait",
            "reserve-abort",
            "reserve-batch",
        } <= await client.features()
        ids = [await client.put("x") for _ in range(1001)]
        assert [job.id for job in await collect(client.list_jobs(name, "ready"))] == ids
        assert await client.truncate(name) == 1001
        assert await collect(client.list_jobs(name)) == []
        with pytest.raises(greenstalk.NotFoundError):
            await client.wait(0, ids[0])
        jobs = [await client.put(body) for body in ("one", "two")]
        batch = await client.reserve_batch(10, 0)
        assert [(job.id, job.body, job.tube) for job in batch] == [
            (jobs[0], "one", name),
            (jobs[1], "two", name),
        ]
        assert (await client.stats_job(await client.move(batch[0], name, delay=9)))["delay"] == 9
        job = await client.put("x")
        async with connect(server, name) as other:
            waiting = asyncio.create_task(other.wait(10, job))
            await asyncio.sleep(0.1)
            await client.delete(job)
            assert await waiting == "deleted"

    run(server, name, use)


async def collect(jobs: AsyncIterator[object]) -> list[object]:
    return [job async for job in jobs]


def test_a_missing_extension_is_named(beanstalkd: Server, name: str) -> None:
    async def use(client: AsyncClient[str]) -> None:
        assert await client.features() == frozenset()
        with pytest.raises(errors.MissingFeatureError, match='"truncate"'):
            await client.truncate(name)
        with pytest.raises(errors.MissingFeatureError, match='"list-jobs"'):
            await collect(client.list_jobs(name))
        assert await client.using() == name

    run(beanstalkd, name, use)


def test_tasks_share_a_client(any_server: Server, name: str) -> None:
    """Each gets the reply to its own command, whatever the sizes of bodies are."""

    async def use(client: AsyncClient[str]) -> None:
        async def one(number: int) -> None:
            body = f"{number}." * (number * 50)
            job = await client.put(body)
            assert (await client.peek(job)).body == body
            await client.delete(job)
            with pytest.raises(greenstalk.NotFoundError):
                await client.peek(job)

        await asyncio.gather(*(one(number) for number in range(200)))

    run(any_server, name, use)


def test_commands_of_tasks_are_sent_at_once(any_server: Server, name: str) -> None:
    """The reserve gets the job of a put of another connection; the delete waits behind it."""

    async def use(client: AsyncClient[str]) -> None:
        await client.features()
        waiting = asyncio.create_task(client.reserve())
        await asyncio.sleep(0)
        behind = asyncio.create_task(client.using())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert not behind.done()
        async with connect(any_server, name) as other:
            job = await other.put("x")
        assert (await waiting).id == job
        assert await behind == name

    run(any_server, name, use)


def test_a_cancelled_call_closes_the_connection(beanstalkd: Server, name: str) -> None:
    async def use(client: AsyncClient[str]) -> None:
        job = await client.put("held")
        assert (await client.reserve(timeout=0)).id == job
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reserve(), 0.1)
        with pytest.raises(ConnectionError):
            await client.using()
        async with connect(beanstalkd, name) as other:
            assert (await other.reserve(timeout=2)).id == job
        await client.connect()
        assert await client.watching() == [name]
        with pytest.raises(RuntimeError, match="connected"):
            await client.connect()

    run(beanstalkd, name, use)


def test_a_cancelled_wait_keeps_the_connection(server: Server, name: str) -> None:
    async def use(client: AsyncClient[str]) -> None:
        held = await client.put("held")
        assert (await client.reserve(timeout=0)).id == held
        async with connect(server, name) as other:
            waits = (
                client.reserve,
                partial(client.reserve_batch, 10, 100),
                partial(client.wait, 100, held),
            )
            for wait in waits:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(wait(), 0.1)
                job = await other.put("not for a call that is cancelled")
                assert (await client.reserve(timeout=0)).id == job
            assert (await client.stats_job(held))["state"] == "reserved"
            assert (await client.stats_tube(name))["current-jobs-reserved"] == 4

    run(server, name, use)


def test_a_first_wait_that_is_cancelled_at_once_keeps_the_connection(
    any_server: Server, name: str
) -> None:
    """The client asks for the features of the server then, and has not sent the wait."""

    async def use(client: AsyncClient[str]) -> None:
        waiting = asyncio.ensure_future(client.reserve(timeout=60))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        job = await client.put("x")
        assert (await client.reserve(timeout=0)).id == job

    run(any_server, name, use)


def test_a_cancelled_wait_with_a_command_behind_it_closes_the_connection(
    server: Server, name: str
) -> None:
    async def use(client: AsyncClient[str]) -> None:
        await client.features()
        waiting = asyncio.create_task(client.reserve())
        behind = asyncio.create_task(client.using())
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(ConnectionError):
            await behind

    run(server, name, use)


def test_commands_after_a_cancelled_wait_get_their_replies(server: Server, name: str) -> None:
    async def use(client: AsyncClient[str]) -> None:
        await client.features()
        waiting = asyncio.create_task(client.reserve())
        await asyncio.sleep(0.05)
        waiting.cancel()
        found = await asyncio.gather(*(client.put("x") for _ in range(10)), client.using())
        assert found[:10] == sorted(found[:10])
        assert found[10] == name
        assert waiting.cancelled()

    run(server, name, use)


@pytest.mark.parametrize("end", ["silence", "end of the connection", "wrong reply"])
def test_a_cancelled_wait_ends_although_the_server_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(async_connection, "ABORT_LIMIT_S", 0.2)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"features\r\n")
        writer.write(b"OK 19\r\n---\n- reserve-abort\r\n")
        await reader.readuntil(b"reserve-abort\r\n")
        if end == "wrong reply":
            writer.write(b"NONSENSE\r\n")
        if end != "end of the connection":
            await reader.read()
        writer.close()

    async def main() -> None:
        async with (
            await asyncio.start_server(serve, "127.0.0.1", 0) as peer,
            AsyncClient(peer.sockets[0].getsockname()) as client,
        ):
            waiting = asyncio.create_task(client.reserve())
            await asyncio.sleep(0.1)
            waiting.cancel()
            done, _ = await asyncio.wait({waiting}, timeout=5)
            assert done
            assert waiting.cancelled()
            with pytest.raises(ConnectionError):
                await client.using()

    asyncio.run(main())


def test_a_cancelled_wait_behind_another_wait_ends(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ignores the abort, which is not the next line after the first wait."""
    monkeypatch.setattr(async_connection, "ABORT_LIMIT_S", 0.2)

    async def use(client: AsyncClient[str]) -> None:
        await client.features()
        first = asyncio.create_task(client.reserve())
        second = asyncio.create_task(client.reserve())
        await asyncio.sleep(0.1)
        second.cancel()
        done, _ = await asyncio.wait({second}, timeout=5)
        assert done
        assert second.cancelled()
        with pytest.raises(ConnectionError):
            await first

    run(server, name, use)


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_job_that_comes_with_the_cancellation_is_ready_again(
    server: Server, name: str, is_batch: bool
) -> None:
    async def use(client: AsyncClient[str]) -> None:
        await client.features()
        waits = client.reserve_batch(10, 100) if is_batch else client.reserve()
        waiting = asyncio.create_task(waits)
        await asyncio.sleep(0.05)
        with Client(("127.0.0.1", server.port), use=name, watch=name) as other:
            # The loop does not read the job before the cancellation.
            job = other.put("x")
            assert eventually(lambda: other.stats_job(job)["state"] == "reserved")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert other.reserve(timeout=2).id == job
        with pytest.raises(ConnectionError):
            await client.using()

    run(server, name, use)


def test_no_call_gets_the_reply_of_a_cancelled_one(any_server: Server, name: str) -> None:
    """All replies have arrived when the first call is cancelled, and no task has read one."""

    async def use(client: AsyncClient[str]) -> None:
        first = asyncio.create_task(client.put("x"))
        second = asyncio.create_task(client.put("y"))
        third = asyncio.create_task(client.put("z"))
        await asyncio.sleep(0)
        # The loop reads nothing meanwhile.
        with Client(("127.0.0.1", any_server.port), use=name) as other:
            assert eventually(lambda: other.stats_tube(name)["current-jobs-ready"] == 3)
        assert client._connection is not None
        while not client._connection._reader._buffer:
            await asyncio.sleep(0)
        first.cancel()
        found = await asyncio.gather(first, second, third, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert [type(one) for one in found[1:]] == [ConnectionError, ConnectionError]

    run(any_server, name, use)


def test_a_server_that_ends_is_a_connection_error(name: str) -> None:
    with ours() as server:

        async def use(client: AsyncClient[str]) -> None:
            waiting = asyncio.create_task(client.reserve())
            await asyncio.sleep(0.05)
            server.kill()
            with pytest.raises(ConnectionError):
                await waiting
            with pytest.raises(ConnectionError):
                await client.using()

        run(server, name, use)


def test_a_client_connects_again(any_server: Server, name: str) -> None:
    async def main() -> None:
        client = connect(any_server, name)
        for _ in range(2):
            async with client:
                assert await client.using() == name
        await client.close()
        with pytest.raises(ConnectionError, match="not connected"):
            await client.using()

    asyncio.run(main())


def test_tasks_that_connect_at_once_share_a_connection(any_server: Server, name: str) -> None:
    async def main() -> None:
        client = connect(any_server, name)
        with Client(("127.0.0.1", any_server.port)) as other:
            before = other.stats()["total-connections"]
            await asyncio.gather(*(client.connect() for _ in range(5)))
            assert other.stats()["total-connections"] == before + 1
        assert await client.watching() == [name]
        await client.close()

    asyncio.run(main())


def test_no_command_is_sent_before_the_tubes_are_chosen(any_server: Server, name: str) -> None:
    async def main() -> None:
        client = connect(any_server, name)
        connecting = asyncio.create_task(client.connect())
        while not connecting.done():
            with contextlib.suppress(ConnectionError):
                assert await client.watching() == [name]
            await asyncio.sleep(0)
        await connecting
        assert await client.watching() == [name]
        await client.close()

    asyncio.run(main())


def test_a_client_whose_tubes_cannot_be_chosen_is_not_connected(any_server: Server) -> None:
    async def main() -> None:
        client = connect(any_server, "no tube")
        for _ in range(2):
            with pytest.raises(ValueError, match="tube name"):
                await client.connect()
        with pytest.raises(ConnectionError, match="not connected"):
            await client.using()

    asyncio.run(main())


def test_bodies_are_bytes_without_an_encoding(server: Server, name: str) -> None:
    async def main() -> None:
        everything = bytes(range(256)) * 200
        address = ("127.0.0.1", server.port)
        async with AsyncClient(address, encoding=None, use=name, watch=name) as client:
            await client.put(everything)
            assert (await client.reserve(timeout=0)).body == everything

    asyncio.run(main())


def test_a_body_that_cannot_be_decoded_closes_the_connection(server: Server, name: str) -> None:
    async def use(client: AsyncClient[str]) -> None:
        with Client(("127.0.0.1", server.port), encoding=None, use=name) as other:
            job = other.put(b"\xff")
            with pytest.raises(UnicodeDecodeError):
                await client.reserve(timeout=0)
            with pytest.raises(ConnectionError):
                await client.using()
            # The loop closes the socket.
            await asyncio.sleep(0)
            assert eventually(lambda: other.stats_job(job)["state"] == "ready")

    run(server, name, use)


@pytest.mark.parametrize(
    ("what", "use"),
    [
        ("delay -3", lambda client, job: client.put("x", delay=-3)),
        ("priority 4294967296", lambda client, job: client.put("x", priority=2**32)),
        ("TTR -1", lambda client, job: client.put("x", ttr=-1)),
        ("timeout -1", lambda client, job: client.reserve(-1)),
        ("timeout 2147483648", lambda client, job: client.reserve(2**31)),
        ("number of jobs 0", lambda client, job: client.reserve_batch(0, 0)),
        ("number of jobs 1001", lambda client, job: client.reserve_batch(1001, 0)),
        ("timeout -1", lambda client, job: client.reserve_batch(1, -1)),
        ("seconds -1", lambda client, job: client.wait(-1, 1)),
        ("job id -1", lambda client, job: client.wait(1, -1)),
        ("delay -1", lambda client, job: client.release(job, delay=-1)),
        ("priority -1", lambda client, job: client.release(job, priority=-1)),
        ("priority -1", lambda client, job: client.bury(job, priority=-1)),
        ("bound 18446744073709551616", lambda client, job: client.kick(2**64)),
        ("delay -1", lambda client, job: client.pause_tube("default", -1)),
        ("job id -1", lambda client, job: client.reserve_job(-1)),
        ("job id 18446744073709551616", lambda client, job: client.peek(2**64)),
        ("job id -1", lambda client, job: client.delete(-1)),
        ("job id -1", lambda client, job: client.touch(greenstalk.Job(-1, ""))),
        ("job id -1", lambda client, job: client.kick_job(-1)),
        ("job id -1", lambda client, job: client.stats_job(-1)),
        ("state 'any 0 1", lambda client, job: collect(client.list_jobs("x", "any 0 1\r\nquit"))),
    ],
)
def test_an_argument_that_the_server_rejects_is_not_sent(
    server: Server,
    name: str,
    what: str,
    use: Callable[[AsyncClient[str], greenstalk.Job[str]], Awaitable[object]],
) -> None:
    async def main(client: AsyncClient[str]) -> None:
        await client.put("x")
        job = await client.reserve(timeout=0)
        with pytest.raises(ValueError, match=what):
            await use(client, job)
        assert await client.using() == name
        assert (await client.stats_job(job))["state"] == "reserved"

    run(server, name, main)


def test_arguments_at_their_limits(any_server: Server, name: str) -> None:
    async def use(client: AsyncClient[str]) -> None:
        most = 2**32 - 1
        job = await client.put("x", priority=most, delay=most, ttr=most)
        assert await client.kick(2**64 - 1) == 1
        held = await client.reserve(timeout=2**31 - 1)
        await client.release(held, priority=0, delay=most)
        assert await client.kick(-1) == 1
        await client.bury(await client.reserve_job(job), priority=most)
        await client.pause_tube(name, most)
        with pytest.raises(greenstalk.NotFoundError):
            await client.peek(2**64 - 1)

    run(any_server, name, use)


def test_a_put_with_a_bad_format_closes_the_connection() -> None:
    """The server executes its body, and the replies would become those of later commands."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"tubes\r\n")
        writer.write(b"BAD_FORMAT\r\nUSING wrong\r\n")
        await reader.read()
        writer.close()

    async def main() -> None:
        async with (
            await asyncio.start_server(serve, "127.0.0.1", 0) as peer,
            AsyncClient(peer.sockets[0].getsockname()) as client,
        ):
            put = asyncio.create_task(client.put("list-tubes"))
            behind = asyncio.create_task(client.using())
            with pytest.raises(greenstalk.BadFormatError):
                await put
            with pytest.raises(ConnectionError):
                await behind
            with pytest.raises(ConnectionError):
                await client.using()

    asyncio.run(main())


def test_unix_sockets(tmp_path: Path, name: str) -> None:
    with serving_unix(tmp_path / "socket") as path:

        async def main() -> None:
            async with AsyncClient(path, use=name) as client:
                assert await client.using() == name

        asyncio.run(main())


@pytest.mark.costly
def test_tls(tmp_path: Path, name: str) -> None:
    with serving(Files(tmp_path, trustme.CA())) as both:

        async def main() -> None:
            address = ("localhost", both.port)
            async with AsyncClient(address, use=name, tls=both.files.context()) as client:
                assert await client.using() == name

        asyncio.run(main())
