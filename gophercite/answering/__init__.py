"""From a question to an answer with its proof: the one path through retrieval and sampling."""
