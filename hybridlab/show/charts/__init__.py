"""Charts: lines and points over two axes (`chart`), losses over steps (`curves`), times over bytes (`scaling`), what a
rank holds over a step (`memory_over_time`), and all ranks of what counts for their room (`room_over_time`)."""
