"""From a question to an answer with its proof: the single path through retrieval and sampling."""
