"""Stores: what is added is found, on a folder and on S3, by the embedded engine and by Dask; two writers, older files."""

import json
import os
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest
from conftest import generated
from distributed import Client, LocalCluster

import numaloc
from numaloc import fleet


@pytest.fixture(scope="session")
def variants(tmp_path_factory):
    """Synthetic profiles of different sizes."""
    folder = tmp_path_factory.mktemp("variants")
    return [generated(folder / f"{n}.numaloc", 8, 20, 40 * (n + 1)) for n in range(3)]


def filled(store, variants):
    """Three programs on two hosts on two days."""
    for host in ["a", "b/c"]:
        for number, profile in enumerate(variants):
            for date in ["2026-11-01", "2026-11-20"]:
                other = variants[(number + (date > "2026-11-10")) % 3]
                numaloc.store_add(
                    other, store, host=host, program=f"p {number}", date=date, commit="abc", nodes=4
                )
    return store


def test_what_is_added_is_found(variants, tmp_path):
    found = numaloc.Fleet(filled(tmp_path / "store", variants))
    assert len(found) == 12
    runs = found.runs()
    assert set(runs.host) == {"a", "b/c"} and set(runs.program) == {"p 0", "p 1", "p 2"}
    assert set(runs.date) == {"2026-11-01", "2026-11-20"} and (runs.threads == 8).all()
    profile = numaloc.Profile.open(variants[0])
    shown = profile.shown(nodes=4)
    query = "select metric, value from metrics where program = 'p 0' and date = '2026-11-01' and host = 'a'"
    assert {m: v for m, v in found.sql(query).itertuples(index=False) if v == v} == {
        m: v for m, v in shown["metrics"].items() if v is not None
    }
    total = found.sql("select sum(events) as n from communication where program = 'p 0' and host = 'a' and date < '2026-11-10'")
    assert total.n[0] == profile.matrix().sum()
    remote = sum((o["reads"] + o["writes"]) * (1 - o["local_share"]) for p in variants[1:]
                 for o in numaloc.Profile.open(p).shown(nodes=4)["objects"])  # fmt: skip
    row = found.most_remote().set_index("program").loc["p 1"]
    assert row.remote_accesses == pytest.approx(2 * remote, abs=4) and row.runs == 4


def test_questions_have_the_same_answers_on_dask(variants, tmp_path):
    store = filled(tmp_path / "store", variants)
    embedded = numaloc.Fleet(store)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        distributed = numaloc.Fleet(store, cluster=client, share=5)
        for question in ["most_remote", "changes", "badly_placed"]:
            ours, theirs = getattr(embedded, question)(), getattr(distributed, question)()
            assert len(ours) >= 3, question
            assert ours.equals(theirs), question
    assert set(embedded.badly_placed().hosts) == {2}
    changed = embedded.changes()
    assert (changed.program == "p 0").any() and (changed.change.abs().diff().dropna() <= 1e-9).all()


def test_two_writers_at_once_lose_nothing(variants, tmp_path):
    store = tmp_path / "store"
    script = (
        "import sys, numaloc\n"
        "for n in range(4):\n"
        "    for p in sys.argv[3:]:\n"
        "        numaloc.store_add(p, sys.argv[1], host=sys.argv[2], program=f'p{n}', date='2026-11-01', nodes=4)\n"
    )
    words = [sys.executable, "-c", script, str(store)]
    # Both write the runs of host `both`; each has runs of its own.
    writers = [
        subprocess.Popen([*words, host, *map(str, variants)], cwd=tmp_path) for host in ["one", "both", "both", "two"]
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    found = numaloc.Fleet(store)
    assert len(found) == 3 * 4 * 3
    counts = found.sql("select host, count(*) as n from runs group by host order by host")
    assert counts.n.tolist() == [12, 12, 12]
    assert found.sql("select count(distinct run) as n from objects").n[0] == 36
    assert not list(store.rglob("*.partial"))


def test_a_run_without_its_last_file_does_not_count(variants, tmp_path):
    store = filled(tmp_path / "store", variants)
    last = sorted((store / "runs").rglob("*.parquet"))[0]
    last.unlink()
    found = numaloc.Fleet(store)
    assert len(found) == 11
    assert found.sql("select count(distinct run) as n from metrics").n[0] == 11


def test_files_of_older_and_newer_releases_are_read(variants, tmp_path):
    store = filled(tmp_path / "store", variants)
    older, newer = sorted((store / "objects").rglob("*.parquet"))[:2]
    table = pyarrow.parquet.read_table(older, partitioning=None)
    rows = table.num_rows
    pyarrow.parquet.write_table(table.drop_columns(["exclusivity", "variable"]), older)
    table = pyarrow.parquet.read_table(newer, partitioning=None)
    added = pyarrow.array(["x"] * table.num_rows)
    pyarrow.parquet.write_table(table.append_column("added_later", added), newer)
    found = numaloc.Fleet(store)
    frame = found.sql("select run, exclusivity from objects")
    assert frame.exclusivity.isna().sum() >= rows
    assert frame.run.nunique() == 12
    assert len(found.most_remote()) == 3


def test_adding_again_changes_nothing(variants, tmp_path):
    store = tmp_path / "store"
    first = numaloc.store_add(variants[0], store, host="h", nodes=4)
    content = {path: path.read_bytes() for path in store.rglob("*.parquet")}
    assert numaloc.store_add(variants[0], store, host="h", nodes=4) == first
    assert {path: path.read_bytes() for path in store.rglob("*.parquet")} == content
    assert len(content) == len(fleet.SCHEMAS)


def test_what_cannot_be_stored_or_read_is_said(variants, tmp_path):
    with pytest.raises(numaloc.NumalocError, match="cannot read the store"):
        numaloc.Fleet(tmp_path / "nowhere")
    with pytest.raises(numaloc.NumalocError, match="YYYY-MM-DD"):
        numaloc.store_add(variants[0], tmp_path / "s", date="yesterday")
    with pytest.raises(numaloc.NumalocError, match="expected a folder or s3"):
        numaloc.store_add(variants[0], "ftp://x/y")
    store = filled(tmp_path / "store", variants)
    damaged = sorted((store / "objects").rglob("*.parquet"))[0]
    damaged.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(numaloc.NumalocError, match="cannot read table objects"):
        numaloc.Fleet(store).most_remote()


def test_a_bucket_is_a_store(variants, tmp_path, monkeypatch):
    """Against a server on this machine (moto)."""
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name, value in [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_REGION", "us-east-1")]:
            monkeypatch.setenv(name, value)
        bucket = fs.S3FileSystem(endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True)
        bucket.create_dir("profiles")
        filled("s3://profiles/ours", variants)
        on_s3, local = numaloc.Fleet("s3://profiles/ours"), numaloc.Fleet(filled(tmp_path / "store", variants))
        assert len(on_s3) == len(local) == 12
        for question in ["most_remote", "changes", "badly_placed"]:
            assert getattr(on_s3, question)().equals(getattr(local, question)())
    finally:
        server.stop()


def test_the_report_is_one_file_with_every_answer(variants, tmp_path):
    found = numaloc.Fleet(filled(tmp_path / "store", variants))
    page = found.report(tmp_path / "fleet.html")
    text = open(page).read()
    assert "12 runs" in text and "p 1" in text and "stencil.c:41" in text and "http://" not in text
    with pytest.raises(numaloc.NumalocError, match="it exists"):
        found.report(page)
    found.report(page, force=True)


def test_the_command_says_in_one_line_what_it_lacks(tmp_path, monkeypatch):
    words = [os.environ["NUMALOC"], "store", "ask", str(tmp_path / "nowhere"), "runs"]
    for python, why in [("/nonexistent/python", "No such file"), ("false", "no package numaloc")]:
        monkeypatch.setenv("NUMALOC_PYTHON", python)
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 1 and done.stdout == ""
        first, *rest = done.stderr.splitlines()
        assert first.startswith(f"error: cannot use a store with {python}: ") and why in first
        assert len(rest) == 1 and "docs/python.md" in rest[0]
    monkeypatch.setenv("NUMALOC_PYTHON", sys.executable)
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: cannot read the store")


def test_the_command_adds_and_asks(variants, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMALOC_PYTHON", sys.executable)
    store = str(tmp_path / "store")

    def numaloc_store(*words):
        return subprocess.run([os.environ["NUMALOC"], *words], capture_output=True, check=True, text=True).stdout

    options = ["--nodes=4", "--program=-odd name", "--date=2026-11-01", "--commit=abc"]
    runs = numaloc_store("store", "add", *options, *map(str, variants), store)
    assert len(set(runs.split())) == len(numaloc.Fleet(store)) == 3
    asked = json.loads(numaloc_store("--json", "store", "ask", store, "most-remote"))
    assert asked["version"] == 1 and asked["question"] == "most-remote"
    assert asked["rows"][0]["program"] == "-odd name" and asked["rows"][0]["runs"] == 3
    added = json.loads(numaloc_store("--json", "store", "add", *options, *map(str, variants), store))
    assert added == {"version": 1, "store": store, "runs": runs.split()}
    page, answer = str(tmp_path / "fleet.html"), tmp_path / "report.json"
    assert numaloc_store(f"--json={answer}", "store", "report", store, "-o", page) == ""
    assert json.loads(answer.read_text()) == {"version": 1, "report": page}
