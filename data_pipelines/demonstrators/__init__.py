"""Scripted demonstrators: they browse a world for questions whose proof is known, and record it."""
