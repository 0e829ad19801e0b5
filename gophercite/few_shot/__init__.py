"""Few-shot prompts for a base model, to produce the first training data (sections 2.5 and H)."""
