"""Launch: from a model's config to a plan, and from a plan to the commands that start it elsewhere.

`imported` reads a Hugging Face config; `lines` writes those of Megatron-LM, torchtitan and Slurm; `letters` reads
and writes Megatron-LM's layout of stages; `traced` compares a
profiler's trace of that run with the prediction.
"""
