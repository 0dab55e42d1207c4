"""What is learnt from: `text` (bytes) and `images` (handwritten digits), on every machine, without a network."""
