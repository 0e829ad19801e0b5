"""A second implementation of the model, in plain NumPy loops, to hold the first one against."""

import math

import numpy as np

from gophercite.models.config import TransformerConfig


def forward(config, params, tokens, positions, segments):
    """Final representations, [batch, length, d_model], in float64, one token pair at a time."""
    c: TransformerConfig = config
    get = lambda tree: {name: np.asarray(value, np.float64) for name, value in tree.items()}  # noqa: E731
    stack = get(params["trained_layers"])
    x = np.asarray(params["embed"]["embedding"], np.float64)[tokens]
    if c.scale_embeddings:
        x = x * np.sqrt(c.d_model)
    if c.position == "learned":
        x = x + np.asarray(params["embed"]["positions"], np.float64)[positions]
    for layer in range(c.num_layers):
        weights = {name: value[layer] for name, value in stack.items()}
        weights |= get({n: v for n, v in params["embed"].items() if n == "distance_biases"})
        read = _norm(c, x, weights, "attention_norm")
        attended = _attention(c, weights, read, positions, segments, layer)
        if c.post_norms:
            attended = _norm(c, attended, weights, "attention_post_norm")
        read = x if c.parallel_residual else x + attended
        changed = _mlp(c, weights, _norm(c, read, weights, "mlp_norm"))
        if c.post_norms:
            changed = _norm(c, changed, weights, "mlp_post_norm")
        x = x + attended + changed
    final = get(params["final_norm"])
    final = {"final_norm": final["scale"], "final_norm_bias": final.get("bias")}
    return _norm(c, x, final, "final_norm")


def _norm(c, x, weights, name):
    scale = weights[name] + (1 if c.zero_centered_norms else 0)
    if c.norm == "layer":
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(
            x.var(-1, keepdims=True) + c.norm_epsilon
        ) * scale + weights[f"{name}_bias"]
    return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + c.norm_epsilon) * scale


def _linear(weights, name, x):
    return x @ weights[name] + weights.get(f"{name}_bias", 0)


def _mlp(c, weights, x):
    act = {
        "gelu": lambda z: 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))),
        "gelu_exact": lambda z: 0.5 * z * (1 + np.vectorize(math.erf)(z / np.sqrt(2))),
        "silu": lambda z: z / (1 + np.exp(-z)),
        "relu": lambda z: np.maximum(z, 0),
    }[c.activation]
    inner = _linear(weights, "up", x)
    inner = inner * act(_linear(weights, "gate", x)) if c.gated_mlp else act(inner)
    return _linear(weights, "down", inner)


def _per_layer(value, layer):
    return value[layer] if isinstance(value, tuple) else value


def _rotate(c, x, position, theta, slower):
    width = int(len(x) * c.rotary_fraction)
    half = width // 2
    angle = position / slower * theta ** (-np.arange(half) / half)
    if c.rope_scaling is not None:
        angle = angle * [_slowing(c.rope_scaling, theta ** (-i / half)) for i in range(half)]
    a, b = x[:half], x[half:width]
    turned = [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)]
    return np.concatenate([*turned, x[width:]])


def _slowing(scaling, frequency):
    turns = scaling.original_length * frequency / (2 * np.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    if turns <= low:
        return 1 / scaling.factor
    if turns >= high:
        return 1
    share = (turns - low) / (high - low)
    return share + (1 - share) / scaling.factor


def _distance(c, weights, head, distance):
    half = (c.d_model + 1) // 2
    angle = distance * 10_000.0 ** (-np.arange(half) / half)
    wave = np.concatenate([np.sin(angle), np.cos(angle)])[: c.d_model]
    return (wave @ weights["relative"]).reshape(c.num_heads, c.head_dim)[head]


def _bias(c, table, head, distance):
    """T5's: one bucket a distance up to half of them, then by the distance's logarithm."""
    exact = c.distance_buckets // 2
    if distance < exact:
        return table[head, distance]
    share = math.log(distance / exact) / math.log(c.max_distance / exact)
    return table[head, min(exact + int(share * (c.distance_buckets - exact)), table.shape[1] - 1)]


def _attention(c, weights, x, positions, segments, layer):
    batch, length, _ = x.shape
    window = _per_layer(c.window, layer)
    rope = _per_layer(c.rope_theta, layer), _per_layer(c.rope_interpolation, layer)
    q, k, v = (_linear(weights, name, x) for name in ("query", "key", "value"))
    q = q.reshape(batch, length, c.num_heads, c.head_dim)
    k, v = (y.reshape(batch, length, c.kv_heads, c.head_dim) for y in (k, v))
    if c.query_key_norm:
        q, k = _norm(c, q, weights, "query_norm"), _norm(c, k, weights, "key_norm")
    out = np.zeros_like(q)
    for b in range(batch):
        for h in range(c.num_heads):
            shared = h // (c.num_heads // c.kv_heads)
            for i in range(length):
                scores, seen = [], []
                for j in range(i + 1):
                    if segments[b, i] != segments[b, j] or (window and i - j >= window):
                        continue
                    if c.position == "rope":
                        score = _rotate(c, q[b, i, h], positions[b, i], *rope) @ _rotate(
                            c, k[b, j, shared], positions[b, j], *rope
                        )
                    elif c.position in ("learned", "t5"):
                        score = q[b, i, h] @ k[b, j, shared]
                    else:
                        u = weights["content_bias"].reshape(c.num_heads, -1)[h]
                        w = weights["position_bias"].reshape(c.num_heads, -1)[h]
                        score = (q[b, i, h] + u) @ k[b, j, shared]
                        score += (q[b, i, h] + w) @ _distance(c, weights, h, i - j)
                    score = score / np.sqrt(c.query_pre_attn_scalar or c.head_dim)
                    if c.position == "t5":
                        score += _bias(c, weights["distance_biases"], h, i - j)
                    if c.attention_softcap:
                        score = np.tanh(score / c.attention_softcap) * c.attention_softcap
                    scores.append(score)
                    seen.append(v[b, j, shared])
                weight = np.exp(np.array(scores) - max(scores))
                out[b, i, h] = weight / weight.sum() @ np.array(seen)
    return _linear(weights, "out", out.reshape(batch, length, -1))
