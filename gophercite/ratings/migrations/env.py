"""Run by Alembic: uses the connection that `gophercite.ratings.store` opened, in its transaction.

To make a new version, change `schema.py` with its `VERSION`, add a file under `versions/` by hand,
and let `tests/ratings/test_store.py` compare the two.
"""

from alembic import context

from gophercite.ratings.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,  # SQLite alters a table by creating it again
)
context.run_migrations()
