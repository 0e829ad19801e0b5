"""What evaluations found, for people: tables, figures and pages (GopherCite, section 3)."""
