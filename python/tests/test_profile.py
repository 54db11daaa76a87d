"""Profiles: tables without copies, matrices, metrics and verdicts equal to those of the program."""

import json
import os
import pickle
import subprocess

import duckdb
import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import numaloc


def shown(profile, *options):
    done = subprocess.run(
        [os.environ["NUMALOC"], "--json", "show", str(profile), *options], capture_output=True, check=True, text=True
    )
    return json.loads(done.stdout)


def test_the_matrix_is_that_of_the_program(synthetic):
    profile = numaloc.Profile.open(synthetic)
    for unit, amount in [("events", "events"), ("bytes", "bytes")]:
        expected = shown(synthetic, "--matrix", "csv", "--amount", amount)
        cells = np.asarray(expected["matrix"] if isinstance(expected, dict) else expected, dtype=float)
        matrix = profile.matrix("write_read", unit)
        assert matrix.dtype == np.float64 and matrix.shape == (16, 16)
        np.testing.assert_array_equal(matrix, cells)
    assert profile.layers == ["write_read"]
    np.testing.assert_array_equal(profile.matrix(), profile.matrix("write_read", "events"))
    np.testing.assert_array_equal(profile.matrix(unit="lines"), profile.matrix(unit="events"))
    matrix = profile.matrix()
    matrix[0, 1] = -1
    assert profile.matrix()[0, 1] != -1


def test_tables_have_the_declared_columns_and_every_reader_sees_the_same_rows(synthetic):
    profile = numaloc.Profile.open(synthetic)
    table = profile.communication
    assert table.column_names == ["slice", "src", "dst", "layer", "events", "bytes"]
    assert table.units["events"] == "events" and table.units["src"] == "row of `threads`"
    frame = pandas.DataFrame.from_arrow(table)
    assert len(frame) == len(table) == table.num_rows
    total = profile.matrix().sum()
    assert frame.events.sum() == total
    assert polars.DataFrame(table)["events"].sum() == total
    rows = table
    assert duckdb.sql("select sum(events) from rows where layer = 'write_read'").fetchall()[0][0] == total
    written = pyarrow.parquet.read_table(synthetic / "communication.parquet")
    read = pyarrow.table(table)
    for name in ["slice", "src", "dst", "events", "bytes"]:
        assert read[name].to_pylist() == written[name].to_pylist()
    assert read["layer"].to_pylist() == written["layer"].to_pylist()


def test_every_table_is_the_one_in_the_folder(traced):
    profile = numaloc.Profile.open(traced)
    for name in [
        "threads", "slices", "communication", "objects", "variables", "pages", "page_slices", "cell_errors",
        "shared_lines", "contended_lines", "contended_visits", "marks", "slow_loads", "mpi_calls", "mpi_waits",
    ]:  # fmt: skip
        ours = pyarrow.table(getattr(profile, name))
        path = traced / f"{name}.parquet"
        if not path.exists():
            assert ours.num_rows == 0, name
            continue
        written = pyarrow.parquet.read_table(path)
        assert ours.column_names == written.column_names, name
        assert ours.to_pylist() == written.to_pylist(), name


def test_consumers_share_the_memory_of_a_table(synthetic):
    profile = numaloc.Profile.open(synthetic)
    addresses = {
        pyarrow.table(profile.communication)["events"].chunk(0).buffers()[1].address for _ in range(3)
    }
    assert len(addresses) == 1
    values = pyarrow.table(profile.communication)["events"].chunk(0).to_numpy(zero_copy_only=True)
    assert values.__array_interface__["data"][0] in addresses
    del profile
    assert values.sum() > 0


def test_metrics_and_verdicts_are_those_of_the_program(synthetic):
    profile = numaloc.Profile.open(synthetic)
    for options, parameters in [
        (["--nodes", "4"], {"nodes": 4}),
        (["--machine", "epyc-7501"], {"machine": "epyc-7501"}),
    ]:
        expected = shown(synthetic, *options)
        found = profile.shown(**parameters)
        assert found["metrics"] == expected["metrics"]
        assert found["verdicts"] == expected["verdicts"]
        assert found["assumed"] == expected["assumed"]
        metrics = profile.metrics(**parameters)
        assert dict(metrics) == expected["metrics"] and metrics.units == expected["units"]
        verdicts = profile.verdict(**parameters)
        assert [v.verdict for v in verdicts] == [v["verdict"] for v in expected["verdicts"]]
        assert verdicts[verdicts[0].measure] is verdicts[0]


def test_a_notebook_shows_profile_verdict_and_machine(synthetic):
    profile = numaloc.Profile.open(synthetic)
    page = profile._repr_html_()
    assert page.count("<svg") == 1 and "page placement" in page.replace("_", " ")
    assert numaloc.Machine("numa:2 core:2 pu:1")._repr_svg_().startswith("<svg")
    assert "communication_heterogeneity" in profile.metrics(nodes=4)._repr_html_()
    assert "<table>" in profile.verdict(nodes=4)._repr_html_()


def test_profiles_and_machines_travel_to_other_processes(synthetic):
    profile = pickle.loads(pickle.dumps(numaloc.Profile.open(synthetic)))
    assert profile.matrix().sum() > 0
    machine = pickle.loads(pickle.dumps(numaloc.Machine("numa:2 core:2 pu:1")))
    assert machine.pus == 4 and machine.node_of_pu().tolist() == [0, 0, 1, 1]
    assert machine.distances().shape == (4, 4) and machine.distances()[0, 3] > machine.distances()[0, 1]


@pytest.mark.parametrize("name", ["meta.json", "communication.parquet", "threads.parquet"])
def test_a_damaged_file_is_named(damaged, name):
    folder = damaged(name)
    with pytest.raises(numaloc.NumalocError, match=name):
        numaloc.Profile.open(folder).matrix()


def test_what_is_not_there_is_answered_with_what_is(synthetic, tmp_path):
    with pytest.raises(numaloc.NumalocError, match="nowhere"):
        numaloc.Profile.open(tmp_path / "nowhere")
    with pytest.raises(numaloc.NumalocError, match="meta.json"):
        numaloc.Profile.open(tmp_path)
    profile = numaloc.Profile.open(synthetic)
    with pytest.raises(numaloc.NumalocError, match="expected one of write_read"):
        profile.matrix("message")
    with pytest.raises(numaloc.NumalocError, match="events, bytes or lines"):
        profile.matrix(unit="pages")
    with pytest.raises(numaloc.NumalocError, match="communication"):
        profile.table("comm")
    with pytest.raises(numaloc.NumalocError, match="numa:4"):
        numaloc.Machine("nowhere")
