"""What is asked again and again does not take longer with each experiment that is over."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from determined.store import Reader, Writer


def plans(connection: sqlite3.Connection, statements: list[str]) -> list[str]:
    """How SQLite would carry out these statements."""
    return [
        row[3] for text in statements for row in connection.execute(f"EXPLAIN QUERY PLAN {text}")
    ]


def test_no_query_of_a_tick_or_a_client_reads_all_experiments(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    reader = Reader(tmp_path)
    asked: list[str] = []
    for connection in (writer._connection, reader._connection):
        connection.set_trace_callback(asked.append)
    with writer.transaction() as transaction:
        transaction.unfinished_experiments()
        transaction.unfinished_runs()
        transaction.with_garbage()
        transaction.with_calls()
        transaction.unanswered()
    writer.has_commands()
    reader.has_chores()
    reader.has_unanswered()
    reader.unfinished_runs()
    for connection in (writer._connection, reader._connection):
        connection.set_trace_callback(None)
    queries = [text for text in asked if text.startswith("SELECT")]
    assert len(queries) >= 9
    found = plans(writer._connection, queries)
    whole = [line for line in found if line.startswith("SCAN") and "INDEX" not in line]
    # Deletions that are due are few, and gone when they are done.
    assert [line for line in whole if line != "SCAN deletion"] == []
    writer.close()
    reader.close()
