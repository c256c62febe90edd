"""Arrays as PostgreSQL's own text: whatever a name contains arrives as it was."""

from __future__ import annotations

import asyncpg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corral.store.postgres.commit_engine import number_array, text_array
from corral.testing.postgres_server import PostgresServer

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_AWKWARD = st.sampled_from(["", "NULL", '"', "\\", '","', "{}", "a,b", "\n", " x ", '\\"', "\x1f"])


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    texts=st.lists(_TEXT | _AWKWARD, max_size=6),
    numbers=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=6),
)
async def test_arrays_sent_as_text_arrive_as_they_were(
    postgres: PostgresServer, texts: list[str], numbers: list[int | None]
) -> None:
    connection = await asyncpg.connect(postgres.url())
    try:
        assert await connection.fetchval("select $1::text::text[]", text_array(texts)) == texts
        assert await connection.fetchval("select $1::text::bigint[]", number_array(numbers)) == numbers
    finally:
        await connection.close()
