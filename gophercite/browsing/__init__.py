"""A model in the text browser: it reads what the environment shows, and writes what comes next."""
