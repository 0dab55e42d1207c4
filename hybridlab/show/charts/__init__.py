"""Charts: lines and points over two axes (`chart`), losses over steps (`curves`), times over bytes (`scaling`)."""
