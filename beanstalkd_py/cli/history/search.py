"""`history topics`, `ls`, `get`, `query` and `tail`: finding messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from beanstalkd_py import errors
from beanstalkd_py.cli.history.message_format import (
    Lines,
    full_text,
    one_line,
    show,
    time_text,
    to_json,
)
from beanstalkd_py.cli.history.store_options import AS_JSON, Place, StoredTube, topic_of
from beanstalkd_py.cli.number_arguments import INT64_MAX, Number
from beanstalkd_py.cli.output import (
    Table,
    counted,
    say,
    write,
    write_json,
    write_line,
    write_table,
)
from beanstalkd_py.cli.time_arguments import Moment

if TYPE_CHECKING:
    from beanstalkd_py.history.message import Stored
    from beanstalkd_py.history.queries.conditions import MessageFilter
    from beanstalkd_py.history.reader import StoreReader

_NS_PER_MS = 10**6


def between(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --from and --to."""
    until = click.option("--to", "until", metavar="TIME", type=Moment(), help="Only before then.")
    since = click.option(
        "--from", "since", metavar="TIME", type=Moment(), help="Only then or later."
    )
    return since(until(command))


def span(since: int | None, until: int | None) -> dict[str, int]:
    """`begin` and `end` of the library, both in milliseconds and both included."""
    begin = 0 if since is None else max(-(-since // _NS_PER_MS), 0)
    end = INT64_MAX if until is None else -(-until // _NS_PER_MS) - 1
    return {"begin": begin, "end": end}


FILTER = click.option(
    "--filter",
    "filters",
    metavar="CONDITION",
    multiple=True,
    help="Only messages that say so: tag=deleted, pri<1024, timeouts!=0, body~word. May be given"
    " several times; all must hold.",
)
FILTER_HELP = """\
A CONDITION is NAME, one of = != < <= > >= ~ !~, and a value. NAME is a property, such as
    pri, ttr, reserves, timeouts, releases, buries or kicks, or one of tag (how it ended), key (the
    job id), body, and size (bytes of the body). ~ looks for a regular expression (Python's)
    anywhere in it; (?i) before it takes small and capital letters as the same. Where a message has
    no such property, only != and !~ hold. properties.NAME is a property whatever its name."""


def chooser(filters: Sequence[str]) -> MessageFilter:
    """Whether a message fulfils all of --filter. ToolUsageError."""
    from beanstalkd_py.history.queries.conditions import all_conditions

    try:
        return all_conditions(filters)
    except ValueError as error:
        raise errors.ToolUsageError(f"option --filter: {error}") from error


class Warned:
    """The conditions of --filter; notes properties that no message has. ToolUsageError."""

    def __init__(self, filters: Sequence[str]) -> None:
        from beanstalkd_py.history.queries.conditions import properties_of

        self._chooser = chooser(filters)
        self._unmet = properties_of(filters)
        self._seen = False

    def __call__(self, message: Stored) -> bool:
        """Whether a message fulfils all of them."""
        self._seen = True
        if self._unmet:
            self._unmet = [name for name in self._unmet if name not in message.properties]
        return self._chooser(message)

    def warn(self) -> None:
        """One line on stderr for each property that no message had, of those that were asked."""
        for name in self._unmet if self._seen else ():
            say(f"warning: none of the messages has the property {name!r} of --filter")


def explained(command: Callable[..., Any]) -> Callable[..., Any]:
    """Puts FILTER_HELP where a docstring says CONDITIONS."""
    command.__doc__ = (command.__doc__ or "").replace("CONDITIONS", FILTER_HELP)
    return command


@click.command()
@AS_JSON
@click.pass_obj
def topics(place: Place, as_json: bool) -> int:
    """List tubes: how many messages each has, and of which time.

    `tube` is - for a topic that is no tube's, or that is too long to tell its tube.

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history topics
      beanstalkd-py history --store /var/lib/history topics --json | jq -r .tube
    """
    with place.reading() as store:
        place.tell_unreadable(store)
        rows = [_topic(store, topic, ids) for topic, ids in store.topics().items()]
    if as_json:
        for row in rows:
            write_json(row)
        return place.status
    headings = ("tube", "topic", "queues", "messages", "oldest (UTC)", "newest (UTC)")
    table = Table(headings, [])
    for row in rows:
        tube = "-" if row["tube"] is None else one_line(row["tube"])
        times = (row["oldest_at"] or "-", row["newest_at"] or "-")
        queues, messages = len(row["queues"]), row["messages"]
        table.rows.append((tube, one_line(row["topic"]), queues, messages, *times))
    write_table(table)
    return place.status


def _topic(store: StoreReader, topic: str, queue_ids: list[int]) -> dict[str, Any]:
    from beanstalkd_py.history.topics import unescape

    queues, times = [], []
    for queue_id in queue_ids:
        begin, end = store.bounds(topic, queue_id)
        queues.append({"queue_id": queue_id, "begin": begin, "end": end})
        queue = store.queues.get(topic, queue_id)
        for number in {begin, end - 1} if queue is not None and begin < end else ():
            unit = queue.unit(number) if queue is not None else None
            stored = None if unit is None else store.log.store_timestamp(unit.offset)
            times += [] if stored is None else [stored]
    return {
        "tube": unescape(topic),
        "topic": topic,
        "messages": sum(queue["end"] - queue["begin"] for queue in queues),
        "oldest_at": time_text(min(times)) if times else None,
        "newest_at": time_text(max(times)) if times else None,
        "queues": queues,
    }


@click.command()
@between
@click.option(
    "--offset",
    metavar="N",
    type=Number("a queue offset"),
    default=0,
    help="Begin at this queue offset, in each queue of the tube.",
)
@click.option(
    "--limit",
    metavar="N",
    type=Number("a number of messages", minimum=1),
    help="Only the first N.",
)
@FILTER
@AS_JSON
@click.argument("tube", metavar="[TUBE]", required=False, type=StoredTube())
@click.pass_obj
@explained
def ls(
    place: Place,
    since: int | None,
    until: int | None,
    offset: int,
    limit: int | None,
    filters: tuple[str, ...],
    as_json: bool,
    tube: str | None,
) -> int:
    """List messages of the store, or of TUBE, in the order of storing.

    On a terminal the list goes through $PAGER (less).

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
        raise errors.ToolUsageError("option --offset: queue offsets are a tube's; give TUBE, too")
    wanted = Warned(filters)
    with place.reading() as store:
        found = messages_of(place, store, tube, span(since, until), offset)
        if tube is None:
            found = filter(has_queue_unit, found)
        show(islice(filter(wanted, found), limit), as_json, place.telling_later())
    wanted.warn()
    return place.status


def messages_of(
    place: Place, store: StoreReader, tube: str | None, limits: dict[str, int], offset: int = 0
) -> Iterator[Stored]:
    """Messages of a tube, or of the whole store; `limits` are those of `span`. OSError."""
    from beanstalkd_py.history.queries.listing import messages_of_log, messages_of_topic

    if tube is not None:
        return messages_of_topic(store, topic_of(store, tube), place.tell, offset, **limits)
    everything = messages_of_log(store, place.tell)
    return (each for each in everything if limits["begin"] <= each.store_timestamp <= limits["end"])


@click.command()
@click.option("--body", "only_body", is_flag=True, help="Only the body, to the byte.")
@AS_JSON
@click.argument("job_id", metavar="JOB_ID")
@click.pass_obj
def get(place: Place, only_body: bool, as_json: bool, job_id: str) -> int:
    """Show all of a job: properties and body, newest message first.

    All tubes are looked into. In a store of RocketMQ, JOB_ID is any key.

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history get 4711
      beanstalkd-py history --store /var/lib/history get 4711 --body > body

    Exit status 1 if there is no such job. --body writes the newest message's.
    """
    if only_body and as_json:
        raise errors.ToolUsageError("give --body or --json, not both")
    from beanstalkd_py.history.files.compatibility import batch_topics
    from beanstalkd_py.history.queries.listing import (
        messages_of_log,
        report_damaged_keys,
        unindexed_messages,
    )

    found = []
    with place.reading() as store:
        place.tell_index(store)
        for topic in [*store.topics(), *batch_topics(store.folder)]:
            found += store.query(topic, job_id, limit=INT64_MAX)
            report_damaged_keys(store, topic, job_id, place.tell, **span(None, None))
        known = {message.offset for message in found}
        if store.topics():
            missing = unindexed_messages(store, job_id)
        else:  # topics are not known, and the index has hashes of topic and key
            missing = (each for each in messages_of_log(store, place.tell) if job_id in each.keys)
        found += [each for each in missing if each.offset not in known]
    found.sort(key=lambda message: message.offset, reverse=True)
    if not found:
        raise errors.StoreError(f"{place.folder} has no job {job_id!r}")
    if only_body:
        if len(found) > 1:
            say(f"{counted(len(found), 'message')} of job {job_id}; this is the newest")
        write(found[0].body)
        return place.status
    for number, message in enumerate(found):
        if as_json:
            write_json(to_json(message))
        else:
            write_line(("\n" if number else "") + full_text(message))
    return place.status


@click.command()
@between
@click.option(
    "--limit",
    metavar="N",
    type=Number("a number of messages", minimum=1),
    default=64,
    show_default=True,
)
@AS_JSON
@click.argument("tube", metavar="TUBE", type=StoredTube())
@click.argument("key", metavar="KEY")
@click.pass_obj
def query(
    place: Place,
    since: int | None,
    until: int | None,
    limit: int,
    as_json: bool,
    tube: str,
    key: str,
) -> int:
    """List messages of TUBE that have KEY, newest first.

    KEY is a job id, or what UNIQ_KEY of a message says. On a terminal the list goes through $PAGER
    (less).

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history query mails 4711
      beanstalkd-py history --store ./copy-of-a-broker query orders order-17 \\
          --from 3d --json
    """
    from beanstalkd_py.history.queries.listing import report_damaged_keys, unindexed_messages

    with place.reading() as store:
        place.tell_index(store)
        topic, times = topic_of(store, tube), span(since, until)
        found = store.query(topic, key, limit=limit, **times)
        known = {message.offset for message in found}
        found += [
            each
            for each in unindexed_messages(store, key)
            if each.offset not in known
            and each.topic == topic
            and times["begin"] <= each.store_timestamp <= times["end"]
        ]
        found.sort(key=lambda message: message.offset, reverse=True)
        show(found[:limit], as_json, place.telling_later())
        report_damaged_keys(store, topic, key, place.tell, **times)
    return place.status


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on as messages come, until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    "count",
    metavar="N",
    type=Number("a number of messages", maximum=10**6),
    default=10,
    show_default=True,
)
@AS_JSON
@click.argument("tube", metavar="[TUBE]", required=False, type=StoredTube())
@click.pass_obj
def tail(place: Place, follow: bool, count: int, as_json: bool, tube: str | None) -> int:
    """List the last messages of the store, or of TUBE; newest last.

    \b
    Examples:
      beanstalkd-py history --store /var/lib/history tail -f
      beanstalkd-py history --store /var/lib/history tail -n 100 --json mails \\
          | jq -r .body
    """
    from beanstalkd_py.history.queries.listing import has_queue_unit, last_messages

    with place.reading() as store, Lines(as_json, at_once=follow) as lines:
        topic = None if tube is None else topic_of(store, tube)
        if topic is None:
            place.tell_unreadable(store)
        for message in last_messages(store, count, place.tell, topic):
            lines.add(message)
        lines.flush()
        for message in store.follow() if follow else ():
            if has_queue_unit(message) and topic in (None, message.topic):
                lines.add(message)
    return place.status
