"""`history topics`, `ls`, `get`, `query` and `tail`: find messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict

import click

from beanstalkd_py import errors
from beanstalkd_py.cli import output
from beanstalkd_py.cli.argument_types import Number, TimeType
from beanstalkd_py.cli.history import message_format
from beanstalkd_py.cli.history.store_options import StoredTube, StoreOptions, topic_of
from beanstalkd_py.cli.options import AS_JSON, count_option, in_order, option
from beanstalkd_py.plural import counted
from beanstalkd_py.quantities import INT64_MAX

if TYPE_CHECKING:
    from beanstalkd_py.history.message import Stored
    from beanstalkd_py.history.reader import StoreReader

_NS_PER_MS = 10**6


time_range_options = in_order(
    option("--from since", "Only messages at or after TIME.", TimeType()),
    option("--to until", "Only messages before TIME.", TimeType()),
)


class TimeRange(TypedDict):
    """Keyword arguments of the history library: milliseconds, both included."""

    begin: int
    end: int


def time_range(since: int | None, until: int | None) -> TimeRange:
    """Convert times in nanoseconds; `until` is excluded."""
    begin = 0 if since is None else max(-(-since // _NS_PER_MS), 0)
    end = INT64_MAX if until is None else -(-until // _NS_PER_MS) - 1
    return {"begin": begin, "end": end}


FILTER_HELP = """\
A CONDITION is NAME, one of = != < <= > >= ~ !~, and a value. NAME is a property, such as
    pri, ttr, reserves, timeouts, releases, buries or kicks, or one of tag (how the job ended), key
    (job id), body, and size (bytes of the body). ~ searches for a Python regular expression; (?i)
    ignores case. A message without the property matches only != and !~. properties.NAME is a
    property of any name."""


def filter_option(command: Callable[..., Any]) -> Any:
    """Add --filter, and replace CONDITIONS in the docstring by its syntax."""
    command.__doc__ = (command.__doc__ or "").replace("CONDITIONS", FILTER_HELP)
    return option(
        "--filter filters",
        "Only messages that match: tag=deleted, pri<1024, timeouts!=0, body~word. May be"
        " repeated; all conditions must match.",
        metavar="CONDITION",
        multiple=True,
    )(command)


class Filters:
    """The conditions of --filter; records properties that no message has."""

    def __init__(self, filters: Sequence[str]) -> None:
        """Raises ToolUsageError for an invalid condition."""
        from beanstalkd_py.history.queries.conditions import all_conditions, properties_of

        try:
            self._filter = all_conditions(filters)
        except ValueError as error:
            raise errors.ToolUsageError(f"option --filter: {error}") from error
        self._unknown = properties_of(filters)
        self._used = False

    def __call__(self, message: Stored) -> bool:
        self._used = True
        if self._unknown:
            self._unknown = [name for name in self._unknown if name not in message.properties]
        return self._filter(message)

    def warn(self) -> None:
        """Print one line for each property that no message had."""
        for name in self._unknown if self._used else ():
            output.notice(f"warning: no message has the property {name!r} of --filter")


@click.command()
@AS_JSON
@click.pass_obj
def topics(options: StoreOptions, as_json: bool) -> int:
    """List tubes with their numbers of messages and times.

    `tube` is - for a topic that is not a tube, or whose name does not contain the whole tube name.

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history topics
      beanstalkd-py history --store /var/lib/history topics --json | jq -r .tube
    """
    with options.reading() as store:
        options.report_queues(store)
        rows = [_topic(store, topic, ids) for topic, ids in store.topics().items()]
    if as_json:
        for row in rows:
            output.write_json(row)
        return options.status
    headings = ("tube", "topic", "queues", "messages", "oldest (UTC)", "newest (UTC)")
    table = output.Table(headings, [])
    for row in rows:
        tube = "-" if row["tube"] is None else message_format.one_line(row["tube"])
        times = (row["oldest_at"] or "-", row["newest_at"] or "-")
        queues, messages = len(row["queues"]), row["messages"]
        table.rows.append((tube, message_format.one_line(row["topic"]), queues, messages, *times))
    output.write_table(table)
    return options.status


def _topic(store: StoreReader, topic: str, queue_ids: list[int]) -> dict[str, Any]:
    """Return a topic as `topics --json` prints it."""
    from beanstalkd_py.history.topics import unescape

    queues: list[dict[str, int]] = []
    times: list[int] = []
    for queue_id in queue_ids:
        begin, end = store.bounds(topic, queue_id)
        queues.append({"queue_id": queue_id, "begin": begin, "end": end})
        queue = store.queues.get(topic, queue_id)
        if queue is None or begin >= end:
            continue
        units = (queue.unit(begin), queue.unit(end - 1))
        stored = (store.log.store_timestamp(unit.offset) for unit in units if unit is not None)
        times += [each for each in stored if each is not None]
    return {
        "tube": unescape(topic),
        "topic": topic,
        "messages": sum(queue["end"] - queue["begin"] for queue in queues),
        "oldest_at": message_format.time_text(min(times)) if times else None,
        "newest_at": message_format.time_text(max(times)) if times else None,
        "queues": queues,
    }


@click.command()
@time_range_options
@option(
    "--offset",
    "Start at this queue offset in each queue of the tube.",
    Number("a queue offset"),
    default=0,
)
@count_option("--limit", "Print only the first N messages.", "messages", minimum=1)
@filter_option
@AS_JSON
@click.argument("tube", metavar="[TUBE]", required=False, type=StoredTube())
@click.pass_obj
def ls(
    options: StoreOptions,
    since: int | None,
    until: int | None,
    offset: int,
    limit: int | None,
    filters: tuple[str, ...],
    as_json: bool,
    tube: str | None,
) -> int:
    """List messages of the store, or of TUBE, in the order of storing.

    A terminal shows the list in $PAGER (less).

    CONDITIONS

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history ls
      beanstalkd-py history --store /var/lib/history ls mails --from 2h
      beanstalkd-py history --store /var/lib/history ls mails \\
          --offset 1000 --limit 100
      beanstalkd-py history --store /var/lib/history ls mails \\
          --from 1d --filter 'timeouts>0'
    """
    from beanstalkd_py.history.queries.listing import has_queue_unit

    if tube is None and offset:
        raise errors.ToolUsageError("option --offset requires TUBE")
    matches = Filters(filters)
    with options.reading() as store:
        messages = messages_of(options, store, tube, time_range(since, until), offset)
        if tube is None:
            messages = filter(has_queue_unit, messages)
        message_format.show(
            islice(filter(matches, messages), limit), as_json, options.deferring_reports()
        )
    matches.warn()
    return options.status


def messages_of(
    options: StoreOptions, store: StoreReader, tube: str | None, limits: TimeRange, offset: int = 0
) -> Iterator[Stored]:
    """Yield messages of a tube, or of the whole store. Raises OSError."""
    from beanstalkd_py.history.queries.listing import messages_of_log, messages_of_topic

    if tube is not None:
        return messages_of_topic(
            store, topic_of(store, tube), options.report_fault, offset, **limits
        )
    everything = messages_of_log(store, options.report_fault)
    return (each for each in everything if limits["begin"] <= each.store_timestamp <= limits["end"])


@click.command()
@option(
    "--body only_body", "Print only the body of the newest message, byte for byte.", is_flag=True
)
@AS_JSON
@click.argument("job_id", metavar="JOB_ID")
@click.pass_obj
def get(options: StoreOptions, only_body: bool, as_json: bool, job_id: str) -> int:
    """Show a job with all properties and its body, newest message first.

    Searches all tubes. In a store of RocketMQ, JOB_ID is any key.

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history get 4711
      beanstalkd-py history --store /var/lib/history get 4711 --body > body

    Exit status 1 if there is no such job.
    """
    if only_body and as_json:
        raise errors.ToolUsageError("--body and --json exclude each other")
    from beanstalkd_py.history.files.compatibility import batch_topics
    from beanstalkd_py.history.queries.listing import (
        messages_of_log,
        report_damaged_keys,
        unindexed_messages,
    )

    messages = []
    with options.reading() as store:
        options.report_index(store)
        for topic in [*store.topics(), *batch_topics(store.folder)]:
            messages += store.query(topic, job_id, limit=INT64_MAX)
            report_damaged_keys(
                store, topic, job_id, options.report_fault, **time_range(None, None)
            )
        if store.topics():
            unindexed = unindexed_messages(store, job_id)
        else:  # the index has hashes of topic and key, and the topics are unknown
            everything = messages_of_log(store, options.report_fault)
            unindexed = (message for message in everything if job_id in message.keys)
        messages = _newest_first(messages, unindexed)
    if not messages:
        raise errors.StoreError(f"no such job in {options.folder}: {job_id!r}")
    if only_body:
        if len(messages) > 1:
            output.notice(f"newest of {counted(len(messages), 'message')} of job {job_id}")
        output.write(messages[0].body)
        return options.status
    for number, message in enumerate(messages):
        output.write_result(
            as_json,
            message_format.to_json(message),
            ("\n" if number else "") + message_format.full_text(message),
        )
    return options.status


def _newest_first(indexed: list[Stored], unindexed: Iterable[Stored]) -> list[Stored]:
    """Merge messages from the index and from the log, which may have the same ones."""
    offsets = {message.offset for message in indexed}
    messages = [*indexed, *(each for each in unindexed if each.offset not in offsets)]
    return sorted(messages, key=lambda message: message.offset, reverse=True)


@click.command()
@time_range_options
@count_option("--limit", "", "messages", minimum=1, default=64)
@AS_JSON
@click.argument("tube", metavar="TUBE", type=StoredTube())
@click.argument("key", metavar="KEY")
@click.pass_obj
def query(
    options: StoreOptions,
    since: int | None,
    until: int | None,
    limit: int,
    as_json: bool,
    tube: str,
    key: str,
) -> int:
    """List messages of TUBE that have KEY, newest first.

    KEY is a job id, or the UNIQ_KEY of a message. A terminal shows the list in $PAGER (less).

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history query mails 4711
      beanstalkd-py history --store ./copy-of-a-broker query orders order-17 \\
          --from 3d --json
    """
    from beanstalkd_py.history.queries.listing import report_damaged_keys, unindexed_messages

    with options.reading() as store:
        options.report_index(store)
        topic, times = topic_of(store, tube), time_range(since, until)
        unindexed = (
            message
            for message in unindexed_messages(store, key)
            if message.topic == topic and times["begin"] <= message.store_timestamp <= times["end"]
        )
        messages = _newest_first(store.query(topic, key, limit=limit, **times), unindexed)
        message_format.show(messages[:limit], as_json, options.deferring_reports())
        report_damaged_keys(store, topic, key, options.report_fault, **times)
    return options.status


@click.command()
@option("-f --follow", "Wait for new messages until Ctrl-C.", is_flag=True)
@count_option("-n --lines count", "", "messages", maximum=10**6, default=10)
@AS_JSON
@click.argument("tube", metavar="[TUBE]", required=False, type=StoredTube())
@click.pass_obj
def tail(options: StoreOptions, follow: bool, count: int, as_json: bool, tube: str | None) -> int:
    """List the last messages of the store, or of TUBE; newest last.

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history tail -f
      beanstalkd-py history --store /var/lib/history tail -n 100 --json mails \\
          | jq -r .body
    """
    from beanstalkd_py.history.queries.listing import has_queue_unit, last_messages

    with options.reading() as store, message_format.Lines(as_json, unbuffered=follow) as lines:
        topic = None if tube is None else topic_of(store, tube)
        if topic is None:
            options.report_queues(store)
        for message in last_messages(store, count, options.report_fault, topic):
            lines.add(message)
        lines.flush()
        for message in store.follow() if follow else ():
            if has_queue_unit(message) and topic in (None, message.topic):
                lines.add(message)
    return options.status
