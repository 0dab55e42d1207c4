"""What is learnt from: `text` (bytes; `tokens` of any vocabulary) and `images` (handwritten digits), on every machine,
without a network."""
