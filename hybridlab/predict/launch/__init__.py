"""Launch: from a model's config to a plan, and from a plan to the commands that start it elsewhere.

`imported` reads a Hugging Face config; `lines` writes the commands of Megatron-LM, torchtitan and Slurm;
`programs_rules` has the plans that these programs cannot run; `letters` reads and writes Megatron-LM's layout of
stages; `traced` compares a profiler's trace of that run with the prediction.
"""
