"""Stores on Spark: the same answers as the embedded engine's. Run by `make test-spark`, because it needs a Java virtual machine."""

import pytest
from pyspark.sql import SparkSession
from test_fleet import filled, variants  # noqa: F401 (a fixture)

import numaloc


@pytest.fixture(scope="module")
def spark():
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    yield session
    session.stop()


def test_questions_have_the_same_answers_on_spark(spark, variants, tmp_path):  # noqa: F811
    store = filled(tmp_path / "store", variants)
    # A run whose writer was interrupted does not count.
    sorted((store / "runs").rglob("*.parquet"))[0].unlink()
    embedded, on_spark = numaloc.Fleet(store), numaloc.Fleet(store, spark=spark)
    for question in ["most_remote", "changes", "badly_placed"]:
        ours, theirs = getattr(embedded, question)(), getattr(on_spark, question)()
        assert len(ours) >= 3, question
        assert ours.equals(theirs), f"{question}:\n{ours}\n{theirs}"


def test_a_damaged_file_is_one_line(spark, variants, tmp_path):  # noqa: F811
    store = filled(tmp_path / "store", variants)
    sorted((store / "objects").rglob("*.parquet"))[0].write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(numaloc.NumalocError, match="cannot read the store .* on Spark"):
        numaloc.Fleet(store, spark=spark).most_remote()
    with pytest.raises(numaloc.NumalocError, match="cannot ask on both"):
        numaloc.Fleet(store, spark=spark, cluster="127.0.0.1:1")
