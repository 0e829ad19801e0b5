"""Scripted demonstrators, which browse a world for questions whose proof is known."""
