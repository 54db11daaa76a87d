#!/usr/bin/env python3
"""Recomputes metrics from a profile's Parquet tables with DuckDB and compares them with `numaloc show`.

usage: recompute.py NUMALOC PROFILE NODES
"""

import json
import subprocess
import sys

import duckdb


def main():
    numaloc, profile, nodes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    shown = json.loads(subprocess.run(
        [numaloc, "show", profile, "--json", "--nodes", str(nodes)], check=True, capture_output=True).stdout)
    metrics = shown["metrics"]
    db = duckdb.connect()
    for table in ("threads", "communication", "pages"):
        db.execute(f"create view {table} as select * from read_parquet('{profile}/{table}.parquet')")
    threads = db.execute("select count(*) from threads").fetchone()[0]

    # The event matrix without direction: write_read is directed, so C + C^T.
    db.execute("""
        create table cell as
        select i, j, sum(events)::double as events from (
            select src as i, dst as j, events from communication where layer = 'write_read' and src <> dst
            union all
            select dst, src, events from communication where layer = 'write_read' and src <> dst)
        group by i, j""")
    amount = db.execute(f"select sum(events) / ({threads}.0 * {threads}) from cell").fetchone()[0]
    # Heterogeneity over all T x T cells, absent ones zero (OPT eq. 1, 2).
    heterogeneity = db.execute(f"""
        with filled as (
            select t.i, u.j, coalesce(c.events, 0) / (select max(events) from cell) * 100 as m
            from range({threads}) t(i) cross join range({threads}) u(j)
            left join cell c on c.i = t.i and c.j = u.j),
        row_mean as (select i, avg(m) as mean from filled group by i)
        select avg((mean - m) * (mean - m)) from filled join row_mean using (i)""").fetchone()[0]
    # Threads in blocks over the nodes; pages where first touch puts them.
    node = f"(thread::bigint * {nodes} // {threads})"
    db.execute(f"""
        create table use as
        select page, {node} as node, sum(reads + writes)::double as accesses from pages group by page, node""")
    exclusivity = db.execute("""
        select sum(most) / sum(total) from (
            select max(accesses) as most, sum(accesses) as total from use group by page)""").fetchone()[0]
    balance = db.execute(f"""
        with home as (select page, any_value({node}) as home from pages where first_touch group by page),
        load as (select home, sum(accesses) as load from use join home using (page) group by home),
        every as (select coalesce(load, 0) as load from range({nodes}) n(home) left join load using (home))
        select 1 - (max(load) - min(load)) / sum(load) from every""").fetchone()[0]

    inherent = db.execute("""
        select sum(most)::double / sum(total) from (
            select max(n) as most, sum(n) as total from (
                select page, thread, sum(reads + writes) as n from pages group by page, thread) group by page)""").fetchone()[0]
    at = lambda column: f"({column}::bigint * {nodes} // {threads})"
    remote = db.execute(f"""
        select sum(events)::double from communication
        where layer = 'write_read' and {at('src')} <> {at('dst')}""").fetchone()[0]
    accuracy = db.execute(f"""
        with home as (select page, any_value({node}) as home from pages where first_touch group by page),
        best as (select page, max(accesses) as most, sum(accesses) as total from use group by page),
        own as (select u.page, u.accesses from use u join home h on u.page = h.page and u.node = h.home)
        select sum(case when coalesce(o.accesses, 0) = b.most then b.total else 0 end) / sum(b.total)
        from best b join home using (page) left join own o using (page)""").fetchone()[0]

    checks = {
        "application_exclusivity_inherent": inherent,
        "remote_communication": remote,
        "first_touch_access_accuracy": accuracy,
        "communication_amount": amount,
        "communication_heterogeneity": heterogeneity,
        "application_exclusivity": exclusivity,
        "first_touch_access_balance": balance,
    }
    failed = 0
    for key, again in checks.items():
        agrees = abs(metrics[key] - again) <= 1e-9 * max(1.0, abs(again))
        failed += not agrees
        print(f"{key}: numaloc {metrics[key]!r}, DuckDB {again!r}{'' if agrees else '  DIFFERS'}")
    print(f"{len(checks) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
