"""Charts: lines and points on two axes (`chart`), losses by step (`curves`), times by bytes (`scaling`), the
memory of one rank during a step (`memory_over_time`), the memory in use on every rank (`room_over_time`), and published
measurements on GPUs (`on_gpus`)."""
