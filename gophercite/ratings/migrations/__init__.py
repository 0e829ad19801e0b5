"""How the tables of a data base are brought from one version to the next (Alembic)."""
