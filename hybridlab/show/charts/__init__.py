"""Charts: lines and points on two axes (`chart`), with `labels`, the same in panels (`multiples`), losses by step
(`curves`), times by bytes (`scaling`), the memory of one rank during a step (`memory_over_time`), the memory in use
on every rank (`room_over_time`), published measurements on GPUs (`on_gpus`), and a card of quantities (`card`),
each with a small drawing (`strip`)."""
