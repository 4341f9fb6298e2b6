"""An archive of Spark's classes, with which Java starts Spark in two thirds of the time.

    python tests/pipeline/class_archive.py     makes the archive, if there is none

The fixture spark_options has the tests use it. Java ignores an archive of other versions.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from beanstalkd_py.pipeline.session import QUICK_JAVA

ROOT = Path(__file__).parents[2]
# What is loaded here is in the archive: queries in batches and a stream, with Python workers.
SCRIPT = """
import sys
from pyspark.sql import SparkSession, Window, functions as f
folder, = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
spark = builder.getOrCreate()
columns = ["id", "id % 7 kind", "cast(id as string) name", "current_timestamp() time"]
numbers = spark.range(100).selectExpr(*columns)
numbers.repartition(2).write.partitionBy("kind").parquet(folder + "/table")
table = spark.read.parquet(folder + "/table")
rank = f.row_number().over(Window.partitionBy("kind").orderBy(f.desc("id")))
medians = numbers.groupBy("kind").agg(f.percentile_approx("id", 0.5).alias("median"))
joined = table.withColumn("rank", rank).join(medians, "kind", "left")
joined.orderBy("kind", "rank").filter("rank < 3").collect()
joined.mapInArrow(lambda batches: batches, joined.schema).toPandas()
joined.createOrReplaceTempView("joined")
lists = spark.sql("select kind, explode(collect_list(struct(*))) from joined group by kind")
lists.write.json(folder + "/json")
rows = spark.readStream.schema(table.schema).parquet(folder + "/table")
writer = rows.writeStream.option("checkpointLocation", folder + "/checkpoint")
writer = writer.trigger(availableNow=True).format("parquet")
writer.start(folder + "/out").awaitTermination()
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()  # it writes the archive
"""


def path() -> Path:
    """Return where the archive of the installed PySpark is; it may not exist."""
    return ROOT / "build" / f"spark-{importlib.metadata.version('pyspark')}.jsa"


def make() -> None:
    """Raises subprocess.CalledProcessError."""
    archive = path()
    archive.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        new = archive.with_suffix(".new")
        new.unlink(missing_ok=True)
        options = f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={new} -Xlog:disable"
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT)
        subprocess.run(
            [sys.executable, script, folder],
            env={**os.environ, "SPARK_SUBMIT_OPTS": options, "PYSPARK_PYTHON": sys.executable},
            stderr=subprocess.DEVNULL,
            check=True,
        )
        new.rename(archive)


if __name__ == "__main__" and not path().exists():
    make()
