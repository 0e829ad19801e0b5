"""Judging answers: metrics, baselines and estimates (GopherCite, section 3)."""
