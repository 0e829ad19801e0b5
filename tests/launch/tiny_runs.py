"""Bindings that make any run in gin_configs a matter of seconds."""

TINY = {
    "TRAIN_STEPS": "2",
    "BATCH_SIZE": "4",
    "linear_warmup_cosine.warmup_steps": "1",
    "TransformerConfig.d_model": "16",
    "TransformerConfig.num_layers": "2",
    "TransformerConfig.d_ff": "16",
    "TransformerConfig.num_heads": "2",
    "TransformerConfig.head_dim": "8",
    "validation/Input.limit": "8",
    "validation/ComparisonInput.limit": "8",
}
