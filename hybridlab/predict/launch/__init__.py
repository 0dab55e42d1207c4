"""Launch: from a model's config to a plan, and from a plan to the commands that start it elsewhere.

`imported` reads a Hugging Face config; `lines` writes those of Megatron-LM, torchtitan and Slurm; `traced` lays what a
profiler saw there under the prediction.
"""
