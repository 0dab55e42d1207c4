"""Plans: which p and t are quick (`plan_map`), what the time of each goes into (`shares`), the parts of one training
step, predicted and measured (`step_parts`), and how a search for a strategy went (`search_trace`).
"""
