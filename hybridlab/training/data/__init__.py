"""Training data: `text` (bytes) and `images` (handwritten digits), on every machine, without a network."""
