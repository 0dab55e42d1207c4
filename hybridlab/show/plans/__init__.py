"""Plans: which p and t are quick (`plan_map`), what the time of each goes into (`shares`), and the parts of one
training step, predicted and measured (`step_parts`).
"""
