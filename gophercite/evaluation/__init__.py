"""Judging answers: metrics, baselines and reports (GopherCite, section 3)."""
