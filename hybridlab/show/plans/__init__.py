"""Plans: the speed of every p and t (`plan_map`), the parts of each plan's time (`shares`), the parts of one training
step, predicted and measured (`step_parts`), and the course of a search for a strategy (`search_trace`).
"""
