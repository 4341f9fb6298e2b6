"""The tables of a history store: messages, units of consume queues, entries of the index.

Column names are those of RocketMQ's own source for Spark where it has the column.
"""

from __future__ import annotations

from beanstalkd_py.pipeline._columns import lib
from beanstalkd_py.pipeline.sources.columns import (
    BINARY,
    INT,
    LONG,
    PAIRS,
    STRING,
    TIME,
    WORDS,
    Column,
    Kind,
    constant,
    fixed,
    text,
)
from beanstalkd_py.pipeline.sources.read_modes import CORRUPT

MESSAGES = (
    constant("host", STRING),
    text("topic", lib.BC_LOG_TOPIC),
    text("tube", lib.BC_LOG_TUBE, nullable=True),
    fixed("queueId", lib.BC_LOG_QUEUE_ID, INT),
    fixed("queueOffset", lib.BC_LOG_QUEUE_OFFSET, LONG),
    fixed("physicalOffset", lib.BC_LOG_OFFSET, LONG),
    text("tags", lib.BC_LOG_TAGS, nullable=True),
    Column("keys", WORDS, Kind.LIST, lib.BC_LOG_KEYS, parts=(lib.BC_LOG_KEY_TEXT,)),
    Column(
        "properties",
        PAIRS,
        Kind.LIST,
        lib.BC_LOG_PROPERTIES,
        parts=(lib.BC_LOG_PROPERTY_NAME, lib.BC_LOG_PROPERTY_VALUE),
        is_default=False,
    ),
    fixed("flag", lib.BC_LOG_FLAG, INT),
    fixed("sysFlag", lib.BC_LOG_SYS_FLAG, INT),
    fixed("reconsumeTimes", lib.BC_LOG_RECONSUMED, INT),
    fixed("bornTimestamp", lib.BC_LOG_BORN, TIME),
    fixed("storeTimestamp", lib.BC_LOG_STORED, TIME),
    text("bornHost", lib.BC_LOG_BORN_HOST),
    text("storeHost", lib.BC_LOG_STORE_HOST),
    fixed("bodyCrc", lib.BC_LOG_BODY_CRC, INT),
    fixed("bodySize", lib.BC_LOG_BODY_SIZE, INT),
    text("body", lib.BC_LOG_BODY, BINARY, is_default=False),
    fixed("size", lib.BC_LOG_SIZE, INT, is_default=False),
    fixed("preparedTransactionOffset", lib.BC_LOG_PREPARED, LONG, is_default=False),
    Column("path", STRING, Kind.CONSTANT, is_default=False),
    Column(CORRUPT, STRING, Kind.FAULT),
)
QUEUES = (
    constant("host", STRING),
    constant("topic", STRING),
    constant("tube", STRING),
    constant("queueId", INT),
    fixed("queueOffset", lib.BC_UNIT_NUMBER, LONG),
    fixed("physicalOffset", lib.BC_UNIT_OFFSET, LONG),
    fixed("size", lib.BC_UNIT_SIZE, INT),
    fixed("tagCode", lib.BC_UNIT_TAG_CODE, LONG),
    Column("path", STRING, Kind.CONSTANT, is_default=False),
    Column(CORRUPT, STRING, Kind.FAULT),
)
INDEX = (
    constant("host", STRING),
    constant("file", STRING),
    fixed("entry", lib.BC_INDEX_NUMBER, INT),
    fixed("slot", lib.BC_INDEX_SLOT, INT),
    fixed("hash", lib.BC_INDEX_HASH, INT),
    fixed("physicalOffset", lib.BC_INDEX_OFFSET, LONG),
    fixed("storeTimestamp", lib.BC_INDEX_STORED, TIME),
    fixed("previous", lib.BC_INDEX_PREVIOUS, INT),
    Column("path", STRING, Kind.CONSTANT, is_default=False),
    Column(CORRUPT, STRING, Kind.FAULT),
)
VIEWS = {"messages": MESSAGES, "queues": QUEUES, "index": INDEX}
"""Tables by the value of the option `view`."""
