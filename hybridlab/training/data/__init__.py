"""Training data: `text` (bytes; `tokens` of any vocabulary) and `images` (handwritten digits), without a network."""
