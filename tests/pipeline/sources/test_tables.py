"""Tables of Spark's catalog: CREATE TABLE ... USING, catalog.createTable, the spark-sql shell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from core.rig import Rig, put_line
from history.stores import opened, some_messages
from pipeline.plain import rows

from beanstalkd_py.pipeline.binlogs.plan import BinlogPlan
from beanstalkd_py.pipeline.sources.options import Options
from beanstalkd_py.pipeline.stores.plan import StorePlan

OF_SPARK = {"provider": "beanstalkd_binlog", "owner": "root", "location": "/x", "comment": ""}


@pytest.fixture(scope="module")
def binlog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables") / "ann"
    folder.mkdir()
    with Rig(folder, file_size=4096) as rig:
        client = rig.client()
        for number in range(50):
            client.send(b"use tube-%d\r\n" % (number % 3) + put_line(b"x" * 200))
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables") / "store"
    with opened(folder) as store:
        store.append(some_messages(seed=1, count=20))
        store.dispatch()
        store.flush()
    return folder


def test_properties_of_a_table_are_no_options():
    given = {"path": "/x", "Mode": "FAILFAST", "option.mode": "FAILFAST", "team": "a", **OF_SPARK}
    assert Options(given, ["mode"]).given == {"path": "/x", "Mode": "FAILFAST"}
    with pytest.raises(Exception, match="no option 'mod'"):
        Options({**OF_SPARK, "path": "/x", "mod": "x", "option.mod": "x"}, ["mode"])
    with pytest.raises(Exception, match="no option 'team'"):
        Options({"path": "/x", "team": "a"}, ["mode"])


@pytest.fixture
def sql(spark) -> Iterator:
    yield spark.sql
    for table in spark.catalog.listTables():
        if table.tableType != "TEMPORARY":
            spark.sql(f"drop table {table.name}")


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_tables_of_binlogs(spark, sql, binlog):
    whole = rows(BinlogPlan.of({"path": str(binlog)}))
    sql(f"create table jobs using beanstalkd_binlog options (path '{binlog}')")
    assert sql("select count(*), count(distinct tube) from jobs").first()[:] == (len(whole), 3)
    # Not only the path is kept, and properties are no options.
    sql(
        "create table few using beanstalkd_binlog comment 'c' tblproperties ('team' 'a') options"
        f" (path '{binlog.parent}/*', subscribe 'tube-1', columns 'host,id,tube', mode 'failfast')"
    )
    found = sql("select * from few")
    assert found.columns == ["host", "id", "tube"]
    assert {row[:] for row in found.collect()} == {
        ("ann", row["id"], "tube-1") for row in whole if row["tube"] == "tube-1"
    }
    path = str(binlog)
    spark.catalog.createTable("made", path, "beanstalkd_binlog", includeBody="true")
    assert spark.table("made").where("length(body) = 200").count() == len(whole)
    assert spark.read.option("endingTimestamp", 1).table("made").count() == 0
    # Dropping a table removes no files.
    sql("drop table jobs")
    assert rows(BinlogPlan.of({"path": path})) == whole


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_tables_of_stores(sql, store):
    whole = rows(StorePlan.of({"path": str(store)}))
    sql(f"create table store_messages using rocketmq_store options (path '{store}')")
    assert sql("select sum(bodySize), count(*) from store_messages").first()[:] == (
        sum(row["bodySize"] for row in whole),
        len(whole),
    )
    sql(f"create table store_queues using rocketmq_store options (path '{store}', view 'queues')")
    assert "tagCode" in sql("select * from store_queues").columns


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_invalid_tables(spark, sql, binlog):
    def create(options: str, columns: str = "") -> None:
        sql(f"create table bad {columns} using beanstalkd_binlog options ({options})")

    with pytest.raises(Exception, match="no option 'mod'"):
        create(f"path '{binlog}', mod 'x'")
    with pytest.raises(Exception, match="no mode 'loud'"):
        create(f"path '{binlog}', mode 'loud'")
    create(f"path '{binlog}'", "(id bigint)")
    with pytest.raises(Exception, match="CREATE TABLE keeps it only without a list of columns"):
        sql("select * from bad").collect()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_spark_sql_shell_keeps_tables(binlog, tmp_path):
    """In Hive's catalog, for a later session."""
    import pyspark

    shell = Path(pyspark.__file__).parent / "bin" / "spark-sql"

    def run(text: str) -> str:
        command = [shell, "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
        command += ["--conf", "spark.driver.bindAddress=127.0.0.1"]
        command += ["--conf", "spark.driver.host=127.0.0.1"]
        command += ["--conf", f"spark.sql.warehouse.dir={tmp_path}/warehouse", "-S", "-e", text]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=250,
            cwd=tmp_path,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    run(f"create table jobs using beanstalkd_binlog options (path '{binlog}', includeBody 'true')")
    assert run("select count(*), sum(length(body)) from jobs").split() == ["50", "10000"]
