"""Model folders on disk: their description, tensors and digests, and reading them."""
