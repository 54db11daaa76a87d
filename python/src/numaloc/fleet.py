"""A store of many profiles: partitioned Parquet in a folder or an S3 bucket, and questions about all of them.

Each run has a file in each table, below ``TABLE/host=H/program=P/date=D/commit=C/RUN.parquet``; ``RUN`` is a digest of the
profile, so adding it again changes nothing, and writers of different runs never write the same file. A file appears
complete; the one of the table ``runs`` appears last, and only runs that have it count.
"""

from __future__ import annotations

import datetime
import hashlib
import html
import json
import os
import posixpath
import re
import socket
import urllib.parse
from typing import TYPE_CHECKING, Any, Optional, Sequence

from ._machine import MachineLike, as_machine
from ._numaloc import NumalocError, __version__
from ._output import appearing
from ._profile import Profile
from ._program import Path

if TYPE_CHECKING:
    import pandas

#: Columns of each table, besides those of the path. Columns may be added; none changes its type or meaning.
SCHEMAS: dict[str, dict[str, str]] = {
    "runs": {
        "run": "string", "numaloc": "string", "command": "string", "frontend": "string", "complete": "bool",
        "threads": "uint32", "layer": "string", "nodes": "uint32", "assumed": "string",
    },
    "metrics": {"run": "string", "metric": "string", "value": "float64", "unit": "string"},
    "verdicts": {"run": "string", "measure": "string", "verdict": "string", "reason": "string", "policy": "string"},
    "objects": {
        "run": "string", "kind": "string", "name": "string", "variable": "string", "size_bytes": "uint64",
        "pages": "uint64", "reads": "uint64", "writes": "uint64", "threads": "uint32", "exclusivity": "float64",
        "local_share": "float64",
    },
    "communication": {
        "run": "string", "layer": "string", "src": "uint32", "dst": "uint32", "events": "uint64", "bytes": "uint64",
    },
}  # fmt: skip
#: Columns in the path of a file, outermost first.
PARTITIONS = ["host", "program", "date", "commit"]

#: A question: SQL over the tables of a share of the runs, and SQL over the united answers (``parts``). Sums of shares
#: are sums of the whole, so any number of shares has the same answer.
QUESTIONS: dict[str, tuple[str, str]] = {
    "most_remote": (
        """
        select program, count(distinct run) as runs, sum((reads + writes) * (1 - local_share)) as remote,
            sum(reads + writes) as accesses
        from objects where local_share is not null group by program
        """,
        """
        select program, sum(runs)::bigint as runs, round(sum(remote))::bigint as remote_accesses,
            round(sum(remote) / sum(accesses), 6) as remote_share
        from parts group by program having sum(accesses) > 0 order by remote_accesses desc, program limit {limit}
        """,
    ),
    "changes": (
        """
        select program, metric, unit, date >= {since} as is_new, sum(value) as total, count(value) as runs
        from metrics where value is not null group by all
        """,
        """
        with sides as (
            select program, metric, any_value(unit) as unit,
                sum(total) filter (where not is_new) / sum(runs) filter (where not is_new) as before,
                sum(total) filter (where is_new) / sum(runs) filter (where is_new) as after
            from parts group by program, metric
        )
        select program, metric, unit, round(before, 9) as before, round(after, 9) as after,
            round((after - before) / abs(before), 6) as change
        from sides where before is not null and after is not null and before <> 0 and after <> before
        order by abs(change) desc, program, metric limit {limit}
        """,
    ),
    "badly_placed": (
        """
        select program, name, host, sum((reads + writes) * (1 - local_share)) as remote, sum(reads + writes) as accesses
        from objects where local_share < {local_below} group by program, name, host
        """,
        """
        select program, name, count(distinct host) as hosts, round(sum(remote))::bigint as remote_accesses,
            round(sum(remote) / sum(accesses), 6) as remote_share
        from parts group by program, name order by hosts desc, remote_accesses desc, program, name limit {limit}
        """,
    ),
}


def _filesystem(path: str):
    """The file system of a path or an ``s3://`` address, and the path there."""
    from pyarrow import fs

    if path.startswith("s3://"):
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        options: dict[str, Any] = {}
        if endpoint:
            parsed = urllib.parse.urlparse(endpoint)
            options = {"endpoint_override": parsed.netloc, "scheme": parsed.scheme}
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if region:
            options["region"] = region
        return fs.S3FileSystem(**options), path[len("s3://") :].rstrip("/")
    if "://" in path:
        raise NumalocError(f"cannot use the store {path}: expected a folder or s3://BUCKET/PREFIX")
    return fs.LocalFileSystem(), os.path.abspath(path)


def _schema(table: str, with_path: bool):
    import pyarrow

    fields = [(name, pyarrow.type_for_alias(kind)) for name, kind in SCHEMAS[table].items()]
    if with_path:
        fields += [(name, pyarrow.string()) for name in PARTITIONS]
    return pyarrow.schema(fields)


def _write(filesystem, path: str, table) -> None:
    """Writes a file that appears complete: S3 shows an object when it is whole, a folder gets it by renaming."""
    from pyarrow import fs, parquet

    filesystem.create_dir(posixpath.dirname(path), recursive=True)
    if isinstance(filesystem, fs.LocalFileSystem):
        # A run that is there has the same content.
        with appearing(path, force=True) as file:
            parquet.write_table(table, file)
    else:
        parquet.write_table(table, path, filesystem=filesystem)


def _rows(profile: Profile, run: str, machine: Optional[MachineLike], nodes: Optional[int]) -> dict[str, list[dict]]:
    """The rows of a run, by table."""
    shown = profile.shown(machine, nodes)
    names = {"metrics": shown["metrics"], "units": shown["units"]}
    rows: dict[str, list[dict]] = {
        "metrics": [
            {"run": run, "metric": name, "value": value, "unit": names["units"][name]}
            for name, value in names["metrics"].items()
        ],
        "verdicts": [{"run": run, **verdict} for verdict in shown["verdicts"]],
        "objects": [{"run": run, **used, "name": used["name"] or "unknown"} for used in shown["objects"]],
        "runs": [
            {
                "run": run,
                "numaloc": __version__,
                "command": json.dumps(shown["command"]),
                "frontend": shown["frontend"],
                "complete": shown["complete"],
                "threads": len(profile.threads),
                "layer": shown["layer"],
                "nodes": shown["nodes"],
                "assumed": shown["assumed"],
            }
        ],
    }
    return rows


def store_add(
    profile: "Profile | Path",
    store: Path,
    *,
    host: Optional[str] = None,
    program: Optional[str] = None,
    date: Optional[str] = None,
    commit: Optional[str] = None,
    machine: Optional[MachineLike] = None,
    nodes: Optional[int] = None,
) -> str:
    """Adds a profile to a store, which is created if it is not there.

    :param store: a folder, or ``s3://BUCKET/PREFIX`` (credentials and endpoint from the usual ``AWS_`` variables).
    :param host: where it was recorded; by default this host.
    :param program: name of the program; by default the file name of the recorded command.
    :param date: ``YYYY-MM-DD``; by default the day (UTC) on which the profile was written.
    :param commit: version of the program; by default ``GIT_COMMIT``, ``GITHUB_SHA`` or ``CI_COMMIT_SHA``, or ``unknown``.
    :param machine, nodes: what metrics are for, as in :meth:`Profile.metrics`; the same for all runs that are compared.
    :returns: the run's identifier. Adding the same profile with the same names again changes nothing.
    """
    import pyarrow

    profile = profile if isinstance(profile, Profile) else Profile(profile)
    meta_file = os.path.join(profile.path, "meta.json")
    if date is None:
        written = datetime.datetime.fromtimestamp(os.path.getmtime(meta_file), datetime.timezone.utc)
        date = written.date().isoformat()
    try:
        datetime.date.fromisoformat(date)
    except ValueError:
        raise NumalocError(f"cannot add {profile.path}: the date is {date!r}, expected YYYY-MM-DD") from None
    known = [os.environ.get(name) for name in ("GIT_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA")]
    command = profile.meta["command"]
    names = {
        "host": host or socket.gethostname(),
        "program": program or (os.path.basename(command[0]) if command else "unknown"),
        "date": date,
        "commit": commit or next(filter(None, known), "unknown"),
    }
    with open(meta_file, "rb") as file:
        content = file.read()
    target = None if machine is None else as_machine(machine).fingerprint
    run = hashlib.sha256(content + json.dumps([names, target, nodes]).encode()).hexdigest()[:24]
    rows = _rows(profile, run, machine, nodes)
    filesystem, root = _filesystem(os.fspath(store))
    folder = "/".join(f"{name}={urllib.parse.quote(value, safe='')}" for name, value in names.items())
    try:
        for table in ["communication", "metrics", "verdicts", "objects", "runs"]:
            if table == "communication":
                content = _communication(profile, run)
            else:
                schema = _schema(table, with_path=False)
                columns = {name: [row.get(name) for row in rows[table]] for name in schema.names}
                content = pyarrow.table(columns, schema=schema)
            _write(filesystem, f"{root}/{table}/{folder}/{run}.parquet", content)
    except (OSError, pyarrow.ArrowException) as error:
        raise NumalocError(f"cannot add {profile.path} to {store}: {error}") from error
    return run


def _communication(profile: Profile, run: str):
    """Sums over slices: a row for each layer and pair."""
    import pyarrow

    table = pyarrow.table(profile.communication)
    sums = table.select(["layer", "src", "dst", "events", "bytes"])
    index = sums.schema.get_field_index("layer")
    sums = sums.set_column(index, "layer", sums["layer"].cast(pyarrow.string()))
    sums = sums.group_by(["layer", "src", "dst"]).aggregate([("events", "sum"), ("bytes", "sum")])
    sums = sums.rename_columns(["layer", "src", "dst", "events", "bytes"]).sort_by(
        [("layer", "ascending"), ("src", "ascending"), ("dst", "ascending")]
    )
    runs = pyarrow.array([run] * sums.num_rows, pyarrow.string())
    return sums.add_column(0, "run", runs).cast(_schema("communication", with_path=False))


def _connection(store: str, runs: Optional[Sequence[str]], tables: Sequence[str]):
    """An embedded DuckDB with the tables of these runs (paths below the tables' folders), or of all."""
    import duckdb
    import pyarrow
    from pyarrow import dataset

    filesystem, root = _filesystem(store)
    connection = duckdb.connect()
    if runs is None:
        runs = _runs(store)
    for table in tables:
        files = [f"{root}/{table}/{run}" for run in runs]
        schema = _schema(table, with_path=True)
        partitioning = dataset.HivePartitioning(pyarrow.schema([(name, pyarrow.string()) for name in PARTITIONS]))
        try:
            # With a declared schema, columns that older files lack are null, and columns that newer ones add are left out.
            rows = dataset.dataset(
                files, schema=schema, filesystem=filesystem, format="parquet", partitioning=partitioning,
                partition_base_dir=f"{root}/{table}",
            ).to_table()  # fmt: skip
        except (OSError, pyarrow.ArrowException) as error:
            raise NumalocError(f"cannot read table {table} of the store {store}: {error}") from error
        connection.register(table, rows)
    return connection


def _runs(store: str) -> list[str]:
    """Paths of the runs, below the folder of a table, in order."""
    from pyarrow import fs

    filesystem, root = _filesystem(store)
    base = f"{root}/runs"
    try:
        found = filesystem.get_file_info(fs.FileSelector(base, recursive=True))
    except OSError as error:
        raise NumalocError(f"cannot read the store {store}: {error}; expected one that `numaloc store add` wrote") from error
    return sorted(info.path[len(base) + 1 :] for info in found if info.path.endswith(".parquet"))


def _tables_of(query: str) -> list[str]:
    return [table for table in SCHEMAS if table in query]


def _answer(connection, query: str):
    """The rows of a query, as an Arrow table."""
    import pyarrow

    return pyarrow.table(connection.sql(query))


def part(store: str, runs: Sequence[str], query: str):
    """The answer for a share of the runs, as an Arrow table. Runs in a worker."""
    return _answer(_connection(store, runs, _tables_of(query)), query)


#: Spark has no unsigned integers: it reads them as the next larger type.
SPARK_TYPES = {"string": "string", "bool": "boolean", "uint32": "bigint", "uint64": "decimal(20,0)", "float64": "double"}


def _on_spark(session: Any, store: str, query: str):
    """The answer of a query for all runs, as an Arrow table, by Spark."""
    import py4j.protocol
    import pyarrow
    import pyspark.errors

    base = store.replace("s3://", "s3a://", 1)
    tables = _tables_of(query)
    # Column names are case-insensitive in Spark; views are the session's, so their names are ours.
    views = {table: f"numaloc_{table}" for table in ["runs", *tables]}
    for table, view in views.items():
        columns = {name: SPARK_TYPES[kind] for name, kind in SCHEMAS[table].items()}
        columns.update(dict.fromkeys(PARTITIONS, "string"))
        schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        frame = session.read.schema(schema).parquet(f"{base}/{table}")
        if table != "runs":
            # Only runs whose last file is there count.
            frame = frame.join(session.table(views["runs"]).select("run"), "run", "left_semi")
        frame.createOrReplaceTempView(view)
    for table in tables:
        query = re.sub(rf"\b(from|join) {table}\b", rf"\1 {views[table]}", query)
    try:
        answer = session.sql(query)
        # Spark 3 has no such method; the way through pandas warns with pandas 3.
        if hasattr(answer, "toArrow"):
            return answer.toArrow()
        return pyarrow.Table.from_pandas(answer.toPandas(), preserve_index=False)
    except (pyspark.errors.PySparkException, py4j.protocol.Py4JError) as error:
        raise NumalocError(f"cannot read the store {store} on Spark: {_cause(str(error))}") from error


def _cause(text: str) -> str:
    """The line of a Java stack trace that says what happened: the outermost cause, else the first line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or lines or ["no reason given"])[0]


class Fleet:
    """The profiles of a store, and questions about them.

    :param path: a folder or ``s3://BUCKET/PREFIX`` that ``numaloc store add`` wrote.
    :param cluster: where questions run: ``None`` (an embedded DuckDB in this process), or a Dask cluster, address or
        client, as in :func:`numaloc.sweep`: each task answers for a share of the runs.
    :param share: runs per task on a cluster.
    :param spark: a ``pyspark.sql.SparkSession`` that questions run on instead; it reads the same files.
    """

    def __init__(self, path: Path, *, cluster: Any = None, share: int = 256, spark: Any = None):
        if cluster is not None and spark is not None:
            raise NumalocError("cannot ask on both: expected cluster= or spark=")
        self.spark = spark
        self.path = os.fspath(path)
        if not self.path.startswith("s3://"):
            self.path = os.path.abspath(self.path)
        self.cluster = cluster
        self.share = share
        self._paths = _runs(self.path)

    def __len__(self) -> int:
        return len(self._paths)

    def __repr__(self) -> str:
        return f"<numaloc.Fleet {self.path}: {len(self)} runs>"

    def sql(self, query: str) -> "pandas.DataFrame":
        """Any query in DuckDB's SQL, embedded; tables: ``runs``, ``metrics``, ``verdicts``, ``objects``,
        ``communication`` (``docs/store.md``), each with ``host``, ``program``, ``date`` and ``commit``."""
        return part(self.path, self._paths, query).to_pandas()

    def runs(self) -> "pandas.DataFrame":
        """The runs, with host, program, date and commit."""
        return self.sql("select * from runs order by program, date, host, run")

    def most_remote(self, limit: int = 10) -> "pandas.DataFrame":
        """Programs with most remote accesses (first touch, threads bound in the order of their creation)."""
        return self._ask("most_remote", limit=int(limit))

    def changes(self, since: Optional[str] = None, limit: int = 20) -> "pandas.DataFrame":
        """Metrics whose mean changed most between runs before ``since`` and runs from then on, by program.

        :param since: ``YYYY-MM-DD``; by default six days before the latest run: this week against all before.
        """
        if since is None:
            dates = [piece[5:] for path in self._paths for piece in path.split("/") if piece.startswith("date=")]
            latest = datetime.date.fromisoformat(max(dates)) if dates else datetime.date.today()
            since = (latest - datetime.timedelta(days=6)).isoformat()
        return self._ask("changes", since=f"'{datetime.date.fromisoformat(since).isoformat()}'", limit=int(limit))

    def badly_placed(self, local_below: float = 0.5, limit: int = 20) -> "pandas.DataFrame":
        """Memory objects less than ``local_below`` of whose accesses are local, and on how many hosts."""
        return self._ask("badly_placed", local_below=float(local_below), limit=int(limit))

    def _ask(self, question: str, **parameters: Any) -> "pandas.DataFrame":
        import duckdb
        import pyarrow

        partial, united = (query.format(**parameters) for query in QUESTIONS[question])
        if self.spark is not None:
            parts = [_on_spark(self.spark, self.path, partial)]
        elif self.cluster is None:
            parts = [part(self.path, self._paths, partial)]
        else:
            from .sweeps import _Cluster

            shares = [self._paths[at : at + self.share] for at in range(0, len(self._paths), self.share)] or [[]]
            cluster = _Cluster(self.cluster, None)
            try:
                futures = cluster.client.map(part, [self.path] * len(shares), shares, [partial] * len(shares), pure=False)
                parts = cluster.client.gather(futures)
            finally:
                cluster.close()
        connection = duckdb.connect()
        connection.register("parts", pyarrow.concat_tables(parts, promote_options="permissive"))
        return _answer(connection, united).to_pandas()

    def report(self, path: Path, *, force: bool = False) -> str:
        """Writes the answers of all questions as one HTML file that needs no network."""
        path = os.fspath(path)
        page = _page(self)
        with appearing(path, force=force) as file:
            file.write(page.encode())
        return path


def _bars(frame: "pandas.DataFrame", name: str, value: str) -> str:
    """A bar for each row."""
    most = max((float(v) for v in frame[value]), default=0.0) or 1.0
    height = 22 * len(frame) + 4
    drawn = "".join(
        f"<text x='236' y='{22 * at + 16}' text-anchor='end'>{html.escape(str(row[name])[:34])}</text>"
        f"<rect x='244' y='{22 * at + 3}' height='16' fill='#12808a' width='{380 * float(row[value]) / most:.1f}'/>"
        f"<text x='{252 + 380 * float(row[value]) / most:.1f}' y='{22 * at + 16}'>{float(row[value]):,.6g}</text>"
        for at, row in enumerate(frame.to_dict("records"))
    )
    return f"<svg width='760' height='{height}' font-family='sans-serif' font-size='12'>{drawn}</svg>"


def _page(fleet: Fleet) -> str:
    remote, changes, bad = fleet.most_remote(), fleet.changes(), fleet.badly_placed()
    sections = [
        ("Programs with most remote accesses", _bars(remote, "program", "remote_accesses") if len(remote) else "", remote),
        ("What changed most in the last week of the store", "", changes),
        ("Objects with most accesses from other nodes, and on how many hosts", "", bad),
    ]
    body = "".join(
        f"<h2>{title}</h2>{figure}{frame.to_html(index=False, border=0)}" for title, figure, frame in sections
    )
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>numaloc: fleet</title>"
        "<style>body{font-family:sans-serif;max-width:60em;margin:2em auto;color:#1b2430}"
        "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #d9dce1}"
        "</style>"
        f"<h1>{len(fleet)} runs</h1><p>{html.escape(fleet.path)}; numaloc {__version__}</p>{body}</html>\n"
    )
